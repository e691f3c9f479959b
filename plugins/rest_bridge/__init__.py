"""The broker over HTTP: the paper's REST interface, live events, status, metrics, the map.

plugin        settings, the socket, start and stop
app           which path leads where, and what every answer has in common
access        who is asking, and what they may
parameters    paths and parameters --> what is asked for
events        /rest/publish and /rest/geopublish
live          server-sent events and long polls, with the seam to the log
views         clients, fences, last positions, topics, status
shapes        events as GeoJSON, JSON, CSV and lines
log_reader    questions to the log, asked of
log_worker    a process of its own, so that no query holds up the broker
openapi       the description of all that, as data
"""
