"""A minute of mixed traffic leaves the broker as it was: the short form of the soak."""

from pathlib import Path

from tests.integration.soaking import soak


async def test_a_minute_of_mixed_traffic_costs_no_memory_and_no_message(tmp_path: Path) -> None:
    report, memory, visits = await soak(tmp_path, seconds=60, seed=1)
    assert not report.broken, str(report)
    assert not memory.grown, f"{memory.warm} bytes when warm, {memory.end} in the end"
    assert visits > 200
    assert report.acknowledged > 1_000
