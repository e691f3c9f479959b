"""The raw client's own packets, compared with bytes typed from the standard."""

import pytest

from tests.conformance.raw import connect, framed, octets, publish, subscribe, unsubscribe


def test_hex_and_quoted_texts_become_bytes():
    assert octets('82 08 00 01 00 03 "a/b" 01') == b"\x82\x08\x00\x01\x00\x03a/b\x01"


def test_a_mistyped_byte_is_an_error():
    with pytest.raises(ValueError, match="'082'"):
        octets("082 08")


def test_routine_packets_are_those_of_the_standard():
    assert connect("c", keep_alive=60) == octets('10 0d 00 04 "MQTT" 04 02 00 3c 00 01 "c"')
    assert connect(
        "c", clean=False, will=("w", "x", 1, True), username="u", password="p"
    ) == octets('10 19 00 04 "MQTT" 04 ec 00 00 00 01 "c" 00 01 "w" 00 01 "x" 00 01 "u" 00 01 "p"')
    assert subscribe(1, ("a", 1), ("b", 2)) == octets('82 0a 00 01 00 01 "a" 01 00 01 "b" 02')
    assert unsubscribe(2, "a") == octets('a2 05 00 02 00 01 "a"')
    assert publish("a", "hi") == octets('30 05 00 01 "a" "hi"')
    assert publish("a", "hi", qos=2, packet_id=3, retain=True, dup=True) == octets(
        '3d 07 00 01 "a" 00 03 "hi"'
    )
    assert framed(0x30, b"\0" * 321)[:3] == octets("30 c1 02")
