"""GeoMQTT's public face: the client library and the command line."""
