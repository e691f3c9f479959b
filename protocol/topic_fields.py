"""Topic names, topic filters and packet ids as fields: read and checked."""

from protocol.errors import BadTopic, MalformedPacket, TopicBeyondLimit
from protocol.fields import decode_string, read_u16
from protocol.mqttg import Dialect
from protocol.topics import GEO_PREFIX, check_filter, check_topic

# Validated topic names by their bytes: a publisher uses few topics many times.
known_topics: dict[bytes, str] = {}
TOPICS_KEPT = 65_536


def read_topic(raw: bytes, dialect: Dialect) -> str:
    """Turn the bytes of a topic name into a checked topic, from memory if it is a known one."""
    topic = known_topics.get(raw)
    if topic is None:
        topic = decode_string(raw)
        require_topic(topic, dialect)
        # Every place makes another `$geo/` topic: keeping those would push out the rest.
        if not topic.startswith(GEO_PREFIX):
            if len(known_topics) >= TOPICS_KEPT:
                known_topics.clear()
            known_topics[raw] = topic
    return topic


def require_topic(topic: str, dialect: Dialect) -> None:
    """Close the connection over what is no topic name."""
    require_limits(topic, dialect)
    try:
        check_topic(topic, dialect.max_levels)
    except BadTopic as error:
        raise MalformedPacket(str(error)) from None


def require_limits(topic: str, dialect: Dialect) -> None:
    """Close the connection over a topic or filter that is longer or deeper than we allow."""
    size = len(topic.encode())
    if size > dialect.max_topic_bytes:
        raise TopicBeyondLimit(f"topic of {size} bytes, limit is {dialect.max_topic_bytes}")
    levels = topic.count("/") + 1
    if levels > dialect.max_levels and not topic.startswith(GEO_PREFIX):
        raise TopicBeyondLimit(f"topic of {levels} levels, limit is {dialect.max_levels}")


def require_filter(topic_filter: str, dialect: Dialect) -> None:
    """Close the connection over what is no topic filter."""
    require_limits(topic_filter, dialect)
    # Geometry and time in a `$geo/` filter may hold what a plain level may not, and are
    # answered with a SUBACK code where they are wrong.
    if dialect.geo and (
        topic_filter.startswith(GEO_PREFIX)
        or (topic_filter.startswith("$share/") and f"/{GEO_PREFIX}" in topic_filter)
    ):
        return
    try:
        check_filter(topic_filter, dialect.max_levels)
    except BadTopic as error:
        raise MalformedPacket(str(error)) from None


def read_packet_id(body: bytes, offset: int = 0) -> tuple[int, int]:
    """Read a packet id, which is never 0 [MQTT-2.3.1-1]."""
    packet_id, offset = read_u16(body, offset)
    if packet_id == 0:
        raise MalformedPacket("packet id 0")
    return packet_id, offset
