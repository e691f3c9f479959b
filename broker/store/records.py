"""Messages and forms as the store writes them, and back."""

from typing import Any

from protocol.message import Message


def message_values(message: Message) -> tuple[Any, ...]:
    """Give a message as the columns topic, payload, qos, retain, client_id, received_ms, geo."""
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.client_id,
        message.received_ms,
        None,
    )


def message_from(values: tuple[Any, ...]) -> Message:
    """Make a message from its columns."""
    topic, payload, qos, retain, client_id, received_ms, _ = values
    return Message(topic, payload, qos, bool(retain), client_id, received_ms)
