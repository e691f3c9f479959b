"""What we encode we decode, for packets of all shapes; the bytes themselves are in vectors."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import packets as p
from protocol.decode import decode, decode_from_server
from protocol.encode import encode, publish_parts
from protocol.frames import FrameReader
from protocol.geo import Location
from protocol.mqttg import GEO

texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), max_size=20)
names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="+#"),
    min_size=1, max_size=20,
)  # fmt: skip
filters = st.lists(st.one_of(st.just("+"), names), min_size=1, max_size=5).map("/".join)
ids = st.integers(1, 65_535)
qualities = st.integers(0, 2)
locations = st.one_of(
    st.none(),
    st.builds(
        Location,
        lat=st.floats(-90, 90),
        lon=st.floats(-180, 180),
        elev=st.floats(-500, 9000, width=32),
    ),
)


@st.composite
def publishes(draw: Any) -> p.Publish:
    qos = draw(qualities)
    return p.Publish(
        topic=draw(names),
        payload=draw(st.binary(max_size=300)),
        qos=qos,
        retain=draw(st.booleans()),
        dup=draw(st.booleans()) if qos else False,
        packet_id=draw(ids) if qos else 0,
    )


@st.composite
def connects(draw: Any) -> p.Connect:
    clean = draw(st.booleans())
    username = draw(st.none() | texts)
    name, level = draw(st.sampled_from([("MQTT", 4), ("MQIsdp", 3), ("GeoMQTT", 4)]))
    return p.Connect(
        client_id=draw(names if level == 3 or not clean else texts),
        protocol_name=name,
        level=level,
        clean_session=clean,
        keep_alive_s=draw(st.integers(0, 65_535)),
        username=username,
        password=draw(st.none() | st.binary(max_size=20)) if username is not None else None,
        will=draw(
            st.none() | st.builds(p.Will, names, st.binary(max_size=20), qualities, st.booleans())
        ),
        bridge=draw(st.booleans()),
        location=draw(locations),
    )


from_clients = st.one_of(
    connects(),
    publishes(),
    st.builds(p.Puback, ids, locations),
    st.builds(p.Pubrec, ids, locations),
    st.builds(p.Pubrel, ids, locations),
    st.builds(p.Pubcomp, ids, locations),
    st.builds(
        p.Subscribe,
        ids,
        st.lists(st.tuples(filters, qualities), min_size=1, max_size=4).map(tuple),
        locations,
    ),
    st.builds(p.Unsubscribe, ids, st.lists(filters, min_size=1, max_size=4).map(tuple), locations),
    st.builds(p.Pingreq, locations),
    st.builds(p.Disconnect, locations),
)
from_servers = st.one_of(
    st.builds(p.Connack, st.integers(0, 5), st.booleans()),
    st.builds(p.Suback, ids, st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1).map(tuple)),
    st.builds(p.Unsuback, ids),
    st.builds(p.Pingresp),
    st.builds(p.Pubrel, ids),
)


@given(from_clients)
@settings(max_examples=500, deadline=None)
def test_what_a_client_encodes_the_broker_decodes(packet: Any) -> None:
    ((first, body),) = FrameReader(1_000_000).receive_data(encode(packet))
    assert decode(first, body, GEO) == packet


@given(from_servers)
@settings(max_examples=200, deadline=None)
def test_what_the_broker_encodes_a_client_decodes(packet: Any) -> None:
    ((first, body),) = FrameReader(1_000_000).receive_data(encode(packet))
    assert decode_from_server(first, body) == packet


@given(publishes())
@settings(deadline=None)
def test_the_parts_of_a_publish_are_the_whole(packet: p.Publish) -> None:
    plain = p.Publish(
        packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id
    )
    first = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    head, tail = publish_parts(first, packet.topic.encode(), packet.payload)
    middle = packet.packet_id.to_bytes(2, "big") if packet.qos else b""
    assert head + middle + tail == encode(plain)
