"""Any bytes at the decoder and at the small languages inside of packets.

The short form mutates seeds for some seconds; the long form (`make fuzz`) runs a million
inputs each, guided by coverage where atheris is installed.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fuzz import mutation, seeds
from tests.fuzz.targets import TARGETS

SHORT = {"packets": 25_000, "texts": 60_000}
LONG = 1_000_000
MIB = 2**20
GUIDED = Path(__file__).with_name("guided.py")


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_is_read_or_refused(target: str) -> None:
    outcomes = {TARGETS[target](seed) for seed in seeds.of(target)}
    assert len(outcomes) > 10


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_the_decoder(target: str) -> None:
    kinds = mutation.run(TARGETS[target], seeds.of(target), runs=SHORT[target], seed=1)
    assert kinds > 100


def test_a_finding_is_told_with_its_input() -> None:
    """The fuzzer itself: it must see what goes wrong."""

    def target(data: bytes) -> str:
        return "long" if len(data) > 3 else str(data[2])

    with pytest.raises(mutation.Finding, match="IndexError"):
        mutation.run(target, [b"abc"], runs=10_000, seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_of_a_million_breaks_the_decoder(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        process = psutil.Process()
        mutation.run(TARGETS[target], seeds.of(target), runs=50_000, seed=2)
        before = process.memory_info().rss
        mutation.run(TARGETS[target], seeds.of(target), runs=LONG, seed=3)
        assert process.memory_info().rss - before < 100 * MIB
        return
    corpus = tmp_path / "corpus"
    seeds.write(target, corpus)
    limits = (f"-atheris_runs={LONG}", "-max_len=2000", "-timeout=5", "-rss_limit_mb=1000")
    done = subprocess.run(
        [sys.executable, str(GUIDED), target, *limits, "-seed=1", str(corpus)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=7000,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    ran = re.search(r"Done (\d+) (?:runs )?in", done.stderr)
    assert ran is not None, done.stderr[-2000:]
    assert int(ran[1]) >= LONG - 1
