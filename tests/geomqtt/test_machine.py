"""The client's protocol state, fed and read as bytes typed from the standard."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomqtt import machine as m
from protocol import packets as p
from protocol.errors import OutOfOrder, ProtocolError
from protocol.geo import Location

CONNACK = "20 02 00 00"
CONNACK_SESSION_PRESENT = "20 02 01 00"


def make_machine(*, clean_session: bool = True) -> m.ClientMachine:
    return m.ClientMachine(p.Connect("c1", clean_session=clean_session, keep_alive_s=60))


def receive(machine: m.ClientMachine, text: str) -> list[m.Event]:
    return list(machine.receive_data(bytes.fromhex(text)))


def sent(machine: m.ClientMachine) -> str:
    return machine.data_to_send().hex(" ")


def connected_machine(*, clean_session: bool = True) -> m.ClientMachine:
    machine = make_machine(clean_session=clean_session)
    machine.connection_made()
    machine.data_to_send()
    receive(machine, CONNACK)
    return machine


def reconnect(machine: m.ClientMachine, connack: str) -> list[m.Event]:
    machine.connection_lost()
    machine.connection_made()
    machine.data_to_send()
    return receive(machine, connack)


def test_a_connection_begins_with_connect():
    machine = make_machine()
    machine.connection_made()
    assert sent(machine) == "10 0e 00 04 4d 51 54 54 04 02 00 3c 00 02 63 31"
    assert sent(machine) == ""


def test_connack_says_whether_the_session_is_there():
    machine = make_machine()
    machine.connection_made()
    assert receive(machine, CONNACK_SESSION_PRESENT) == [m.Connected(True)]
    assert machine.connected


def test_a_refused_connection_is_no_connection():
    machine = make_machine()
    machine.connection_made()
    assert receive(machine, "20 02 00 05") == [m.Refused(5)]
    assert not machine.connected


@pytest.mark.parametrize(
    "text",
    [
        "30 03 00 01 61",  # PUBLISH before CONNACK
        "20 02 00 00 20 02 00 00",  # CONNACK twice
        "20 02 00 00 82 06 00 01 00 01 61 00",  # SUBSCRIBE is for clients
        "20 02 00 00 90 03 00 01 00",  # SUBACK that nobody waits for
        "20 02 00 00 b0 02 00 01",  # UNSUBACK that nobody waits for
    ],
)
def test_a_broker_that_speaks_out_of_turn_is_none(text: str):
    machine = make_machine()
    machine.connection_made()
    with pytest.raises(OutOfOrder):
        receive(machine, text)


def test_what_stood_before_a_broken_packet_is_given_out():
    machine = connected_machine()
    events = machine.receive_data(bytes.fromhex("30 04 00 01 61 78  00 00"))
    assert next(events) == m.MessageReceived(p.Publish("a", b"x"))
    with pytest.raises(ProtocolError):
        next(events)


def test_a_qos_0_publish_is_sent_and_forgotten():
    machine = connected_machine()
    assert machine.publish(p.Publish("a/b", b"hi", retain=True)) == 0
    assert sent(machine) == "31 07 00 03 61 2f 62 68 69"
    assert machine.in_flight == 0


def test_a_qos_1_publish_is_done_when_its_puback_comes():
    machine = connected_machine()
    assert machine.publish(p.Publish("a", b"x", qos=1)) == 1
    assert sent(machine) == "32 06 00 01 61 00 01 78"
    assert receive(machine, "40 02 00 02") == []  # somebody else's
    assert machine.in_flight == 1
    assert receive(machine, "40 02 00 01") == [m.PublishCompleted(1)]
    assert machine.in_flight == 0


def test_a_qos_2_publish_is_done_when_its_pubcomp_comes():
    machine = connected_machine()
    machine.publish(p.Publish("a", b"x", qos=2))
    assert sent(machine) == "34 06 00 01 61 00 01 78"
    assert receive(machine, "40 02 00 01") == []  # PUBACK is not for QoS 2
    assert receive(machine, "50 02 00 01") == []
    assert sent(machine) == "62 02 00 01"
    assert machine.in_flight == 1
    assert receive(machine, "70 02 00 01") == [m.PublishCompleted(1)]
    assert machine.in_flight == 0


def test_an_unknown_pubrec_is_answered_so_that_the_broker_can_forget_it():
    machine = connected_machine()
    assert receive(machine, "50 02 00 09") == []
    assert sent(machine) == "62 02 00 09"


def test_a_received_qos_1_message_is_acknowledged():
    machine = connected_machine()
    assert receive(machine, "32 06 00 01 61 00 07 78") == [
        m.MessageReceived(p.Publish("a", b"x", qos=1, packet_id=7))
    ]
    assert sent(machine) == "40 02 00 07"


def test_a_received_qos_2_message_is_given_out_once_until_it_is_released():
    machine = connected_machine()
    message = m.MessageReceived(p.Publish("a", b"x", qos=2, packet_id=7))
    assert receive(machine, "34 06 00 01 61 00 07 78") == [message]
    assert sent(machine) == "50 02 00 07"
    assert receive(machine, "3c 06 00 01 61 00 07 78") == []  # the same again with DUP
    assert sent(machine) == "50 02 00 07"
    assert receive(machine, "62 02 00 07") == []
    assert sent(machine) == "70 02 00 07"
    assert receive(machine, "34 06 00 01 61 00 07 78") == [message]  # a new one with the old id


def test_a_qos_2_message_stays_received_over_a_reconnect_of_the_session():
    machine = connected_machine(clean_session=False)
    receive(machine, "34 06 00 01 61 00 07 78")
    reconnect(machine, CONNACK_SESSION_PRESENT)
    assert receive(machine, "3c 06 00 01 61 00 07 78") == []
    assert sent(machine) == "50 02 00 07"


def test_a_new_session_forgets_which_qos_2_messages_were_received():
    machine = connected_machine()
    receive(machine, "34 06 00 01 61 00 07 78")
    reconnect(machine, CONNACK)
    assert len(receive(machine, "34 06 00 01 61 00 07 78")) == 1


def test_what_is_in_flight_is_sent_again_with_its_ids_when_the_session_is_there():
    machine = connected_machine(clean_session=False)
    machine.publish(p.Publish("a", b"1", qos=1))
    machine.publish(p.Publish("a", b"2", qos=2))
    machine.publish(p.Publish("a", b"3", qos=2))
    machine.publish(p.Publish("a", b"4", qos=1))
    receive(machine, "50 02 00 03")
    assert reconnect(machine, CONNACK_SESSION_PRESENT) == [m.Connected(True)]
    assert sent(machine) == (
        "62 02 00 03 "  # PUBREL of the one that was received
        "3a 06 00 01 61 00 01 31 "
        "3c 06 00 01 61 00 02 32 "
        "3a 06 00 01 61 00 04 34"
    )
    assert receive(machine, "40 02 00 01 70 02 00 03 40 02 00 04") == [
        m.PublishCompleted(1),
        m.PublishCompleted(3),
        m.PublishCompleted(4),
    ]


def test_without_its_session_qos_1_goes_out_again_and_qos_2_is_given_up():
    machine = connected_machine()
    machine.publish(p.Publish("a", b"1", qos=1))
    machine.publish(p.Publish("a", b"2", qos=2))
    machine.publish(p.Publish("a", b"3", qos=2))
    receive(machine, "50 02 00 03")
    assert reconnect(machine, CONNACK) == [
        m.Connected(False),
        m.GivenUp(3, "the session is gone"),
        m.GivenUp(2, "the session is gone"),
    ]
    assert sent(machine) == "3a 06 00 01 61 00 01 31"
    assert machine.in_flight == 1


def test_what_brokers_hang_up_on_is_given_up_after_five_connections():
    machine = connected_machine(clean_session=False)
    machine.publish(p.Publish("a", b"x", qos=1))
    machine.subscribe([("a", 0)])
    for _ in range(4):
        assert reconnect(machine, CONNACK_SESSION_PRESENT) == [m.Connected(True)]
        assert sent(machine) == "82 06 00 02 00 01 61 00 3a 06 00 01 61 00 01 78"
    reason = "no answer over 5 connections"
    assert reconnect(machine, CONNACK_SESSION_PRESENT) == [
        m.Connected(True),
        m.GivenUp(1, reason),
        m.GivenUp(2, reason),
    ]
    assert sent(machine) == ""


def test_what_is_no_broker_is_seen_from_its_first_byte():
    machine = make_machine()
    machine.connection_made()
    with pytest.raises(OutOfOrder, match="not an MQTT broker"):
        list(machine.receive_data(b"H"))


def test_a_subscription_is_asked_for_and_answered():
    machine = connected_machine()
    assert machine.subscribe([("a/#", 1), ("b", 2)]) == 1
    assert sent(machine) == "82 0c 00 01 00 03 61 2f 23 01 00 01 62 02"
    assert receive(machine, "90 04 00 01 01 80") == [m.RequestAnswered(1, (1, 0x80))]
    assert machine.subscriptions == {"a/#": 1}


def test_an_unsubscription_is_asked_for_and_answered():
    machine = connected_machine()
    machine.subscribe([("a", 0)])
    receive(machine, "90 03 00 01 00")
    machine.data_to_send()
    assert machine.unsubscribe(["a"]) == 2
    assert sent(machine) == "a2 05 00 02 00 01 61"
    assert receive(machine, "b0 02 00 02") == [m.RequestAnswered(2, ())]
    assert machine.subscriptions == {}


def test_subscriptions_are_made_again_when_the_session_is_gone():
    machine = connected_machine()
    machine.subscribe([("a", 1), ("b", 0)])
    receive(machine, "90 04 00 01 01 00")
    reconnect(machine, CONNACK)
    assert sent(machine) == "82 0a 00 02 00 01 61 01 00 01 62 00"
    assert receive(machine, "90 04 00 02 01 80") == [m.SubscriptionLost("b", 0x80)]
    assert machine.subscriptions == {"a": 1}


def test_subscriptions_are_left_alone_when_the_session_is_there():
    machine = connected_machine(clean_session=False)
    machine.subscribe([("a", 1)])
    receive(machine, "90 03 00 01 01")
    reconnect(machine, CONNACK_SESSION_PRESENT)
    assert sent(machine) == ""


def test_an_unanswered_request_is_sent_again_behind_what_was_subscribed_before():
    machine = connected_machine()
    machine.subscribe([("a", 1)])
    receive(machine, "90 03 00 01 01")
    machine.unsubscribe(["a"])
    reconnect(machine, CONNACK)
    assert sent(machine) == "82 06 00 03 00 01 61 01 a2 05 00 02 00 01 61"
    assert receive(machine, "90 03 00 03 01 b0 02 00 02") == [m.RequestAnswered(2, ())]
    assert machine.subscriptions == {}


def test_a_connection_lost_before_the_subscriptions_are_back_makes_them_again():
    machine = connected_machine()
    machine.subscribe([("a", 1)])
    receive(machine, "90 03 00 01 01")
    reconnect(machine, CONNACK)
    reconnect(machine, CONNACK)
    assert sent(machine) == "82 06 00 03 00 01 61 01"


def test_packet_ids_in_use_are_passed_over():
    machine = connected_machine()
    machine.publish(p.Publish("a", b"", qos=1))  # 1 stays in flight
    for expected in range(2, 0x1_0000):
        packet_id = machine.publish(p.Publish("a", b"", qos=1))
        assert packet_id == expected
        receive(machine, f"40 02 {packet_id:04x}")
        machine.data_to_send()
    assert machine.publish(p.Publish("a", b"", qos=1)) == 2


def test_a_move_is_a_flagged_pingreq_and_rides_on_the_next_connect():
    machine = connected_machine()
    machine.move(Location(54.5, 8.5, 2.0))
    block = "01 40 4b 40 00 00 00 00 00 40 21 00 00 00 00 00 00 40 00 00 00"
    assert sent(machine) == f"c4 15 {block}"
    machine.connection_lost()
    machine.connection_made()
    assert sent(machine) == f"14 23 00 04 4d 51 54 54 04 02 00 3c {block} 00 02 63 31"


def test_disconnect_and_ping_are_two_bytes():
    machine = connected_machine()
    machine.ping()
    machine.disconnect()
    assert sent(machine) == "c0 00 e0 00"


def test_a_packet_beyond_the_limit_is_refused_before_it_takes_an_id():
    machine = m.ClientMachine(p.Connect("c1"), max_packet_size=100)
    machine.connection_made()
    receive(machine, CONNACK)
    with pytest.raises(ValueError, match="limit is 100"):
        machine.publish(p.Publish("a", bytes(200), qos=1))
    assert machine.in_flight == 0


STREAM = (
    "20 02 00 00  30 04 00 01 61 78  32 06 00 01 61 00 07 78  34 06 00 01 61 00 08 78"
    "62 02 00 08  d0 00  50 02 00 09"
)


@given(st.lists(st.integers(1, 40), max_size=20))
def test_a_stream_cut_anywhere_means_the_same(cuts: list[int]):
    data = bytes.fromhex(STREAM)
    whole, cut = make_machine(), make_machine()
    for machine in (whole, cut):
        machine.connection_made()
        machine.data_to_send()
    expected = list(whole.receive_data(data))
    events: list[m.Event] = []
    edges = [0, *sorted({min(each, len(data)) for each in cuts}), len(data)]
    for start, end in itertools.pairwise(edges):
        events.extend(cut.receive_data(data[start:end]))
    assert events == expected
    assert len(events) == 4
    assert cut.data_to_send() == whole.data_to_send()


@given(st.binary(max_size=60))
def test_any_bytes_are_events_or_a_protocol_error(data: bytes):
    machine = connected_machine()
    try:
        list(machine.receive_data(data))
    except ProtocolError:
        assert data


def test_a_ping_is_due_when_nothing_was_sent_for_the_interval():
    keep_alive = m.KeepAlive(10.0, now=100.0)
    assert keep_alive.next_at() == 110.0
    keep_alive.received(109.0)
    assert not keep_alive.must_ping(109.9)
    assert keep_alive.must_ping(110.0)
    keep_alive.sent(105.0)
    assert not keep_alive.must_ping(110.0)
    assert keep_alive.next_at() == 115.0


def test_a_ping_is_due_when_nothing_came_for_the_interval():
    keep_alive = m.KeepAlive(10.0, now=100.0)
    keep_alive.sent(109.0)
    assert keep_alive.must_ping(110.0)


def test_a_broker_that_does_not_answer_a_ping_within_the_interval_is_dead():
    keep_alive = m.KeepAlive(10.0, now=100.0)
    keep_alive.pinged(110.0)
    keep_alive.sent(118.0)
    assert not keep_alive.is_dead(119.9)
    assert keep_alive.is_dead(120.0)
    assert keep_alive.next_at() == 120.0
    keep_alive.received(119.95)
    assert not keep_alive.is_dead(125.0)
