"""What a session keeps, for how long, and what is sent again (sections 3.1.2.4, 4.1, 4.4)."""

from __future__ import annotations

from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    publish,
    publish_with,
    subscribe,
    subscribe_with,
)
from tests.conftest import StartBroker


def gone(clients: Clients, client_id: str) -> None:
    """End a persistent session."""
    clients.connect(client_id, clean=True).disconnect()


def away(clients: Clients, client_id: str, topic_filter: str, qos: int) -> None:
    """Leave a persistent session with a subscription behind."""
    client = clients.connect(client_id, clean=False)
    subscribe_with(client, topic_filter, qos)
    client.disconnect()


def test_messages_wait_for_a_persistent_session(clients: Clients) -> None:
    """[MQTT-3.1.2-5], [MQTT-4.5.0-1], [MQTT-3.2.0-1]: CONNACK, then what was missed, in order."""
    away(clients, "wait", "wait/#", 2)
    publisher = clients.connect()
    publisher.send(publish("wait/1", "a", qos=1, packet_id=1))
    publisher.expect("40 02 00 01")
    publisher.send(publish("wait/2", "b", qos=2, packet_id=2))
    publisher.expect("50 02 00 02")
    publisher.send("62 02 00 02")
    publisher.expect("70 02 00 02")
    publisher.send(publish("wait/3", "c", qos=1, packet_id=3))
    publisher.expect("40 02 00 03")
    client = clients.connect("wait", clean=False, present=True)
    client.expect('32 0b 00 06 "wait/1" 00 01 "a"')
    client.expect('34 0b 00 06 "wait/2" 00 02 "b"')
    client.expect('32 0b 00 06 "wait/3" 00 03 "c"')
    client.send("40 02 00 01 50 02 00 02 40 02 00 03")
    client.expect("62 02 00 02")
    client.send("70 02 00 02")
    client.disconnect()
    clients.connect("wait", clean=False, present=True).expect_nothing()
    gone(clients, "wait")


def test_qos_0_does_not_wait(clients: Clients, topic: str) -> None:
    away(clients, "nowait", topic, 2)
    publisher = clients.connect()
    publisher.send(publish(topic, "lost"))
    publisher.expect_nothing()
    clients.connect("nowait", clean=False, present=True).expect_nothing()
    gone(clients, "nowait")


def test_qos_0_waits_if_the_operator_wants_it(start_broker: StartBroker) -> None:
    broker = start_broker(config="queue_qos0_messages = true\n")
    with clients_of(broker.host, broker.port) as clients:
        away(clients, "patient", "q0", 0)
        publisher = clients.connect()
        publisher.send(publish("q0", "kept"))
        publisher.expect_nothing()
        clients.connect("patient", clean=False, present=True).expect('30 08 00 02 "q0" "kept"')


def test_a_clean_session_forgets_subscriptions_and_messages(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-6]."""
    away(clients, "forget", topic, 1)
    publish_with(clients.connect(), topic, "before")
    client = clients.connect("forget", clean=True)
    client.expect_nothing()
    publish_with(clients.connect(), topic, "after")
    client.expect_nothing()


def test_a_clean_session_ends_with_its_connection(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-6], [MQTT-4.1.0-2]."""
    client = clients.connect("brief", clean=True)
    subscribe_with(client, topic, 1)
    client.expect_nothing()
    client.drop()
    again = clients.connect("brief", clean=False)
    publish_with(clients.connect(), topic, "x")
    again.expect_nothing()
    again.disconnect()
    gone(clients, "brief")


def test_retained_messages_outlive_the_session_that_sent_them(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-7]."""
    client = clients.connect("donor", clean=True)
    publish_with(client, topic, "kept", retain=True)
    client.disconnect()
    clients.connect("donor", clean=True).disconnect()
    reader = clients.connect()
    reader.send(subscribe(1, (topic, 0)))
    reader.expect("90 03 00 01 00")
    reader.expect(f'31 {6 + len(topic):02x} 00 {len(topic):02x} "{topic}" "kept"')


def unacknowledged(clients: Clients, client_id: str, topic: str, qos: int) -> Raw:
    """Connect a persistent subscriber that has two messages and acknowledged none."""
    client = clients.connect(client_id, clean=False)
    subscribe_with(client, topic, qos)
    publisher = clients.connect()
    publisher.send(publish(topic, "one", qos=qos, packet_id=1))
    publisher.expect("40 02 00 01" if qos == 1 else "50 02 00 01")
    publisher.send(publish(topic, "two", qos=qos, packet_id=2))
    publisher.expect("40 02 00 02" if qos == 1 else "50 02 00 02")
    client.expect(publish(topic, "one", qos=qos, packet_id=1))
    client.expect(publish(topic, "two", qos=qos, packet_id=2))
    return client


def test_unacknowledged_qos_1_is_sent_again_in_order_with_dup(clients: Clients, topic: str) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.6.0-1], [MQTT-3.3.1-1], [MQTT-2.3.1-4], [MQTT-4.3.2-1]."""
    unacknowledged(clients, "again1", topic, 1).drop()
    client = clients.connect("again1", clean=False, present=True)
    client.expect(publish(topic, "one", qos=1, packet_id=1, dup=True))
    client.expect(publish(topic, "two", qos=1, packet_id=2, dup=True))
    client.send("40 02 00 01")
    client.expect_nothing()
    client.drop()
    client = clients.connect("again1", clean=False, present=True)
    client.expect(publish(topic, "two", qos=1, packet_id=2, dup=True))
    client.send("40 02 00 02")
    client.disconnect()
    clients.connect("again1", clean=False, present=True).expect_nothing()
    gone(clients, "again1")


def test_unacknowledged_qos_2_is_sent_again_in_the_state_it_was(
    clients: Clients, topic: str
) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.3.3-1]: PUBLISH before PUBREC, PUBREL after it, never both."""
    client = unacknowledged(clients, "again2", topic, 2)
    client.send("50 02 00 01")
    client.expect("62 02 00 01")
    client.drop()
    client = clients.connect("again2", clean=False, present=True)
    client.expect("62 02 00 01")
    client.expect(publish(topic, "two", qos=2, packet_id=2, dup=True))
    client.send("70 02 00 01 50 02 00 02")
    client.expect("62 02 00 02")
    client.drop()
    client = clients.connect("again2", clean=False, present=True)
    client.expect("62 02 00 02")
    client.send("70 02 00 02")
    client.disconnect()
    clients.connect("again2", clean=False, present=True).expect_nothing()
    gone(clients, "again2")


def test_what_was_sent_goes_before_what_was_queued(clients: Clients, topic: str) -> None:
    """[MQTT-4.6.0-1], [MQTT-4.6.0-6]."""
    unacknowledged(clients, "order", topic, 1).drop()
    publish_with(clients.connect(), topic, "three")
    client = clients.connect("order", clean=False, present=True)
    client.expect(publish(topic, "one", qos=1, packet_id=1, dup=True))
    client.expect(publish(topic, "two", qos=1, packet_id=2, dup=True))
    client.expect(publish(topic, "three", qos=1, packet_id=3))
    gone(clients, "order")


def test_a_qos_2_publish_is_taken_once_across_reconnects(clients: Clients, topic: str) -> None:
    """[MQTT-4.3.3-2]: sent again after a reconnect, it is acknowledged and not delivered."""
    subscriber = clients.subscribed(topic, 2)
    publisher = clients.connect("once", clean=False)
    publisher.send(publish(topic, "x", qos=2, packet_id=5))
    publisher.expect("50 02 00 05")
    subscriber.expect(publish(topic, "x", qos=2, packet_id=1))
    publisher.drop()
    publisher = clients.connect("once", clean=False, present=True)
    publisher.send(publish(topic, "x", qos=2, packet_id=5, dup=True))
    publisher.expect("50 02 00 05")
    publisher.drop()
    publisher = clients.connect("once", clean=False, present=True)
    publisher.send("62 02 00 05")
    publisher.expect("70 02 00 05")
    subscriber.expect_nothing()
    publisher.send(publish(topic, "new", qos=2, packet_id=5))
    publisher.expect("50 02 00 05")
    subscriber.expect(publish(topic, "new", qos=2, packet_id=2))
    gone(clients, "once")


def test_a_clean_publisher_starts_its_qos_2_ids_anew(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-6]: the id left open by the last session belongs to nobody."""
    subscriber = clients.subscribed(topic, 2)
    for number in (1, 2):
        publisher = clients.connect("anew", clean=True)
        publisher.send(publish(topic, "x", qos=2, packet_id=5))
        publisher.expect("50 02 00 05")
        subscriber.expect(publish(topic, "x", qos=2, packet_id=number))
        publisher.expect_nothing()
        publisher.disconnect()


def test_the_window_bounds_what_is_in_flight(start_broker: StartBroker) -> None:
    """In-flight windows: the third message leaves when the first is acknowledged."""
    broker = start_broker(config="[limits]\nmax_inflight = 2\n")
    with clients_of(broker.host, broker.port) as clients:
        for qos, finish in ((1, ["40 02 00 01"]), (2, ["50 02 00 01", "70 02 00 01"])):
            subscriber = clients.subscribed("w", qos)
            publisher = clients.connect()
            for number in range(1, 5):
                publisher.send(
                    publish("w", f"{number}", qos=1 if qos == 1 else 2, packet_id=number)
                )
                publisher.expect(f"{'40' if qos == 1 else '50'} 02 00 {number:02x}")
            subscriber.expect(publish("w", "1", qos=qos, packet_id=1))
            subscriber.expect(publish("w", "2", qos=qos, packet_id=2))
            subscriber.expect_nothing()
            subscriber.send(finish[0])
            if qos == 2:
                subscriber.expect("62 02 00 01")
                subscriber.expect_nothing()
                subscriber.send(finish[1])
            subscriber.expect(publish("w", "3", qos=qos, packet_id=3))
            subscriber.expect_nothing()
            subscriber.disconnect()


def test_the_queue_is_bounded_and_keeps_the_oldest(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_queued_messages = 2\n")
    with clients_of(broker.host, broker.port) as clients:
        away(clients, "bounded", "q", 1)
        publisher = clients.connect()
        for text in ("1", "2", "3"):
            publish_with(publisher, "q", text)
        client = clients.connect("bounded", clean=False, present=True)
        client.expect(publish("q", "1", qos=1, packet_id=1))
        client.expect(publish("q", "2", qos=1, packet_id=2))
        client.expect_nothing()


def test_packet_ids_count_up_and_skip_those_in_use(clients: Clients, topic: str) -> None:
    """[MQTT-2.3.1-4]: up from 1, and never 0; one that is in use is passed over."""
    subscriber = clients.subscribed(topic, 1)
    publisher = clients.connect()
    publisher.send(publish(topic, "first", qos=1, packet_id=1))
    publisher.expect("40 02 00 01")
    subscriber.expect(publish(topic, "first", qos=1, packet_id=1))  # and stays unacknowledged
    for start in range(2, 65_536, 512):
        numbers = range(start, min(start + 512, 65_536))
        publisher.send(b"".join(publish(topic, "x", qos=1, packet_id=7) for _ in numbers))
        subscriber.expect(b"".join(publish(topic, "x", qos=1, packet_id=n) for n in numbers))
        subscriber.send(b"".join(b"\x40\x02" + n.to_bytes(2, "big") for n in numbers))
        publisher.expect(bytes.fromhex("40 02 00 07") * len(numbers))
    publish_with(publisher, topic, "round")
    subscriber.expect(publish(topic, "round", qos=1, packet_id=2))
