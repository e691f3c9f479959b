"""The generator's checks: what a broker did wrong must show, in both engines alike."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

import numpy as np
import pytest

from tests.bench.bars import BARS, OURS, Bar, judge
from tests.bench.engines import Engine, NativeEngine, NumpyEngine, Outcome, available, percentile
from tests.bench.generator import Job, measure, plan_of
from tests.bench.plain import filters_of, topics_of
from tests.bench.report import Results, medians_of, text
from tests.bench.rows import ROWS, Row
from tests.bench.traffic import Traffic, plain_traffic

STALL_S = 0.05


class Wire:
    """An engine whose broker is the test: socket pairs, with our ends held here."""

    def __init__(self, engine: type[NativeEngine] | type[NumpyEngine], traffic: Traffic) -> None:
        self._stack = ExitStack()
        self._publishers = [self._pair() for _ in range(traffic.publishers)]
        self._subscribers = [self._pair() for _ in range(traffic.subscribers)]
        self.engine: Engine = engine(
            traffic, [far for _, far in self._publishers], [far for _, far in self._subscribers]
        )
        self._size = traffic.frames.shape[2]

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        near, far = socket.socketpair()
        self._stack.enter_context(near)
        self._stack.enter_context(far)
        near.setblocking(False)
        far.setblocking(False)
        return near, far

    def close(self) -> None:
        self._stack.close()

    def published(self, publisher: int = 0) -> list[bytes]:
        """Let the engine publish what its windows allow, and return what one publisher sent."""
        self.engine.run(0, STALL_S, publishing=True)
        try:
            data = self._publishers[publisher][0].recv(1 << 20)
        except BlockingIOError:
            return []
        return [data[at : at + self._size] for at in range(0, len(data), self._size)]

    def deliver(self, frames: Sequence[bytes], subscriber: int = 0) -> None:
        self._subscribers[subscriber][0].sendall(b"".join(frames))

    def acknowledge(self, data: bytes, publisher: int = 0) -> None:
        self._publishers[publisher][0].sendall(data)

    def hang_up(self) -> None:
        self._subscribers[0][0].close()

    def acknowledgements(self, subscriber: int = 0) -> bytes:
        return self._subscribers[subscriber][0].recv(1 << 16)

    def drain(self) -> Outcome:
        return self.engine.run(2, STALL_S, publishing=False)


class Wires:
    """Makes wires for one kind of engine and closes them."""

    def __init__(self, engine: type[NativeEngine] | type[NumpyEngine]) -> None:
        self._engine = engine
        self._made: list[Wire] = []

    def __call__(self, traffic: Traffic) -> Wire:
        self._made.append(Wire(self._engine, traffic))
        return self._made[-1]

    def close(self) -> None:
        for wire in self._made:
            wire.close()


@pytest.fixture(params=available().values(), ids=lambda engine: engine.__name__)
def wires(request: pytest.FixtureRequest) -> Iterator[Wires]:
    made = Wires(request.param)
    yield made
    made.close()


def traffic(*, publishers: int = 1, subscribers: int = 1, qos: int = 0, window: int = 5) -> Traffic:
    return plain_traffic(
        [["t/0"]] * publishers, qos=qos, window=window, subscribers=subscribers, paired=False
    )


def faults(engine: Engine) -> tuple[int, int]:
    return engine.gaps, engine.stale


def test_a_published_frame_is_a_publish_with_its_number(wires: Wires) -> None:
    frames = wires(traffic(window=2)).published()
    assert len(frames) == 2
    for number, frame in enumerate(frames):
        assert frame[:7] == bytes.fromhex("30 45 00 03") + b"t/0"
        assert struct.unpack_from("<IQ", frame, 7) == (0, number)
        assert len(frame) == 7 + 64


def test_deliveries_in_order_are_complete_and_without_fault(wires: Wires) -> None:
    wire = wires(traffic())
    wire.deliver(wire.published())
    assert wire.drain() is Outcome.DRAINED
    assert wire.engine.deliveries == 5
    assert faults(wire.engine) == (0, 0)


def test_a_lost_delivery_is_detected(wires: Wires) -> None:
    wire = wires(traffic())
    frames = wire.published()
    wire.deliver([frames[0], *frames[2:]])
    wire.drain()
    assert faults(wire.engine) == (1, 0)


def test_a_lost_last_delivery_is_detected(wires: Wires) -> None:
    wire = wires(traffic())
    wire.deliver(wire.published()[:-1])
    assert wire.drain() is Outcome.STALLED


def test_a_duplicated_delivery_is_detected(wires: Wires) -> None:
    wire = wires(traffic())
    frames = wire.published()
    wire.deliver([*frames[:2], *frames[1:]])
    assert wire.drain() is Outcome.DRAINED
    assert faults(wire.engine) == (0, 1)


def test_a_reordered_delivery_is_detected(wires: Wires) -> None:
    wire = wires(traffic())
    frames = wire.published()
    wire.deliver([frames[0], frames[2], frames[1], *frames[3:]])
    assert wire.drain() is Outcome.DRAINED
    assert faults(wire.engine) == (1, 1)


def test_a_fault_at_one_of_several_subscribers_is_detected(wires: Wires) -> None:
    wire = wires(traffic(subscribers=3))
    frames = wire.published()
    wire.deliver(frames, 0)
    wire.deliver(frames[1:], 1)
    wire.deliver(frames, 2)
    wire.drain()
    assert faults(wire.engine) == (1, 0)


def test_publishers_are_checked_apart_from_each_other(wires: Wires) -> None:
    wire = wires(traffic(publishers=2))
    first, second = wire.published(0), wire.published(1)
    mixed = [frame for pair in zip(second, first, strict=True) for frame in pair]
    wire.deliver([*mixed[:4], *mixed[5:]])
    wire.drain()
    assert faults(wire.engine) == (1, 0)


def test_deliveries_cut_at_every_offset_are_put_together(wires: Wires) -> None:
    wire = wires(traffic(window=2))
    data = b"".join(wire.published())
    for at in range(len(data)):
        wire.deliver([data[at : at + 1]])
        wire.engine.run(0.001, STALL_S, publishing=False)
    assert wire.drain() is Outcome.DRAINED
    assert wire.engine.deliveries == 2
    assert faults(wire.engine) == (0, 0)


def test_bytes_that_are_no_delivery_end_the_run(wires: Wires) -> None:
    wire = wires(traffic())
    frames = wire.published()
    wire.deliver([b"\x31" + frames[0][1:]])
    assert wire.drain() is Outcome.MALFORMED


def test_a_stamp_of_no_publisher_ends_the_run(wires: Wires) -> None:
    wire = wires(traffic())
    frame = bytearray(wire.published()[0])
    frame[7] = 9
    wire.deliver([bytes(frame)])
    assert wire.drain() is Outcome.MALFORMED


def test_a_closed_connection_ends_the_run(wires: Wires) -> None:
    wire = wires(traffic())
    wire.published()
    wire.hang_up()
    assert wire.drain() is Outcome.CLOSED


def test_a_message_holds_its_window_until_all_subscribers_have_it(wires: Wires) -> None:
    wire = wires(traffic(subscribers=2, window=1))
    frames = wire.published()
    assert len(frames) == 1
    wire.deliver(frames, 0)
    assert wire.drain() is Outcome.STALLED
    assert wire.published() == []
    wire.deliver(frames, 1)
    assert wire.drain() is Outcome.DRAINED
    assert len(wire.published()) == 1


def test_deliveries_at_qos_1_are_acknowledged_with_their_own_packet_ids(wires: Wires) -> None:
    wire = wires(traffic(qos=1, window=2))
    frames = wire.published()
    assert [frame[7:9].hex() for frame in frames] == ["0001", "0002"]
    wire.deliver([frames[0][:7] + b"\x01\x07" + frames[0][9:], frames[1]])
    assert wire.drain() is Outcome.STALLED  # delivered, but not acknowledged to the publisher
    assert wire.acknowledgements() == bytes.fromhex("40 02 01 07 40 02 00 02")
    wire.acknowledge(bytes.fromhex("40 02 00 01 40 02 00 02"))
    assert wire.drain() is Outcome.DRAINED
    assert wire.engine.wrong_acks == 0


def test_an_acknowledgement_out_of_order_is_detected(wires: Wires) -> None:
    wire = wires(traffic(qos=1, window=2))
    wire.deliver(wire.published())
    wire.acknowledge(bytes.fromhex("40 02 00 02 40 02 00 01"))
    assert wire.drain() is Outcome.DRAINED
    assert wire.engine.wrong_acks == 2


def some_get_some() -> Traffic:
    """Message 0, 2, 4 … goes to the first subscriber alone, 1, 3, 5 … to both."""
    plain = plain_traffic([["t/0", "t/1"]], qos=0, window=4, subscribers=2, paired=False)
    return replace(
        plain,
        steps=np.array([[1, 1], [1, 2]], np.uint32),
        first_number=np.array([0, 1], np.uint64),
    )


def test_a_subscriber_that_gets_only_some_messages_is_checked_for_those(wires: Wires) -> None:
    wire = wires(some_get_some())
    frames = wire.published()
    wire.deliver(frames, 0)
    wire.deliver([frames[1], frames[3]], 1)
    assert wire.drain() is Outcome.DRAINED
    assert faults(wire.engine) == (0, 0)


def test_a_message_lost_to_one_that_gets_only_some_is_detected(wires: Wires) -> None:
    wire = wires(some_get_some())
    frames = wire.published()
    wire.deliver(frames, 0)
    wire.deliver([frames[3]], 1)
    assert wire.drain() is Outcome.DRAINED
    assert faults(wire.engine) == (1, 0)


def test_latencies_are_kept_to_a_few_percent(wires: Wires) -> None:
    wire = wires(traffic(window=1))
    frame = bytearray(wire.published()[0])
    sent_ns = struct.unpack_from("<Q", frame, 19)[0]
    struct.pack_into("<Q", frame, 19, sent_ns - 60_000_000_000)
    wire.deliver([bytes(frame)])
    assert wire.drain() is Outcome.DRAINED
    assert percentile(wire.engine.latency, 0.5) == pytest.approx(60_000_000, rel=0.04)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.idle], ids=lambda row: row.name)
def test_every_row_publishes_on_the_topics_that_are_subscribed(row: Row) -> None:
    made = plan_of(row).traffic
    assert made.publishers * made.window <= max(row.window, row.publishers)
    assert len(filters_of(row)) == row.subscribers
    if row.paired:
        assert [[name] for name in filters_of(row)] == topics_of(row)
    else:
        assert {len(set(topics)) for topics in topics_of(row)} == {row.topics}


def test_a_broker_that_says_nothing_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = Job(asdict(ROWS[0]), silent.getsockname()[1], 0, 0.1, 0.1, 0.1, set_up_s=0.1)
        assert measure(job) == {"failed": "0 connections ready after 0.1 s"}


def test_medians_leave_out_failed_rounds_and_name_a_row_that_mostly_failed() -> None:
    results: Results = {
        "one": {"row": [{"rate": 1.0}, {"rate": 9.0}, {"rate": 5.0}, {"failed": "stalled"}]},
        "two": {"row": [{"failed": "stalled"}, {"failed": "stalled"}, {"rate": 5.0}]},
    }
    assert medians_of(results) == {
        "one": {"row": {"rate": 5.0, "failed_rounds": 1}},
        "two": {"row": {"failed": "stalled"}},
    }


@pytest.mark.parametrize(
    ("bar", "ours", "theirs", "word"),
    [
        (Bar("r", "rate", 8, "peer"), {"rate": 8.0}, {"rate": 1.0}, "met"),
        (Bar("r", "rate", 8, "peer"), {"rate": 7.9}, {"rate": 1.0}, "not met"),
        (Bar("r", "rate", 1, "peer"), {"failed": "stalled"}, {"failed": "stalled"}, "not met"),
        (Bar("r", "rate", 1, "peer"), {"rate": 1.0}, {}, "not measured"),
        (Bar("r", "rate", 1, "peer"), {}, {"rate": 1.0}, "not measured"),
        (Bar("r", "rate", 1, "peer"), {"rate": 1.0}, {"failed": "x"}, "met (the peer failed)"),
        (Bar("r", "kib", 6, at_most=True), {"kib": 6.0}, {}, "met"),
        (Bar("r", "kib", 6, at_most=True), {"kib": 6.1}, {}, "not met"),
    ],
)
def test_a_bar_is_judged_by_the_medians(
    bar: Bar, ours: dict[str, float], theirs: dict[str, float], word: str
) -> None:
    assert judge(bar, {OURS: {"r": ours}, "peer": {"r": theirs}}).word == word


def test_every_bar_names_a_row() -> None:
    named = {bar.row for bar in BARS} | {bar.than_row for bar in BARS if bar.than_row}
    assert named <= {row.name for row in ROWS}
    # Of the geo rows some are there to be seen beside the others.
    assert {row.name for row in ROWS if row.fences == 0 and row.name != "geo-0"} <= named


def test_the_report_names_what_failed() -> None:
    row = ROWS[0]
    said = text(
        [row], {OURS: {row.name: [{"rate": 2e6}]}, "nats": {row.name: [{"failed": "stalled"}]}}
    )
    assert "2,000,000" in said
    assert f"nats, {row.title}: stalled" in said
