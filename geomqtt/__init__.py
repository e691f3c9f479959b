"""GeoMQTT's public face: the client library and the command line.

import geomqtt

async with geomqtt.Client("localhost") as client:
    await client.subscribe("node/#")
    async for message in client.messages:
        print(message.topic, message.payload)
"""

from geomqtt.client import Client, Will
from geomqtt.errors import (
    CannotConnect,
    ConnectionLost,
    ConnectRefused,
    GeoMQTTError,
    SubscribeError,
)
from geomqtt.messages import Message, Messages

__all__ = [
    "CannotConnect",
    "Client",
    "ConnectRefused",
    "ConnectionLost",
    "GeoMQTTError",
    "Message",
    "Messages",
    "SubscribeError",
    "Will",
]
