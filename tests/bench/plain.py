"""The plan of plain MQTT rows: PUBLISH on topics of one length, with the subscriptions for them."""

import random

from tests.bench.rows import Row
from tests.bench.traffic import Exchange, Plan, plain_traffic, subscribe

# Subscriptions that only fill the broker: so many in a packet, so many on a connection.
IN_A_PACKET = 500
ON_A_CONNECTION = 5000


def topics_of(row: Row) -> list[list[str]]:
    """Return the topics that each publisher walks through, in its own order."""
    if row.paired:
        return [[f"bench/pair/{p:05}"] for p in range(row.publishers)]
    names = [f"bench/{number:06}" for number in range(row.topics)]
    shuffled = []
    for publisher in range(row.publishers):
        random.Random(publisher).shuffle(names)
        shuffled.append(list(names))
    return shuffled


def filters_of(row: Row) -> list[str]:
    """Return the one filter of each subscriber."""
    if row.paired:
        return [f"bench/pair/{s:05}" for s in range(row.subscribers)]
    return ["bench/+" if row.topics > 1 else "bench/000000"] * row.subscribers


def others_of(row: Row) -> list[list[Exchange]]:
    """Return the subscriptions of other connections, which lie beside the published topics."""
    connections = []
    for start in range(0, row.others, ON_A_CONNECTION):
        end = min(start + ON_A_CONNECTION, row.others)
        filters = [f"bench/{number:06}/+/state" for number in range(start, end)]
        connections.append(
            [
                subscribe(filters[at : at + IN_A_PACKET], 0)
                for at in range(0, len(filters), IN_A_PACKET)
            ]
        )
    return connections


def plan(row: Row) -> Plan:
    """Make the frames and the subscriptions of a row."""
    traffic = plain_traffic(
        topics_of(row),
        qos=row.qos,
        window=max(1, row.window // row.publishers),
        subscribers=row.subscribers,
        paired=row.paired,
    )
    subscribers = [[subscribe([name], row.qos)] for name in filters_of(row)]
    return Plan(traffic, subscribers, others_of(row), clean=not row.persistent)
