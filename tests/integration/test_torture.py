"""Nothing acknowledged is lost when the broker is killed: the short form of the torture."""

import time
from pathlib import Path

import pytest

from tests.integration.killing import torture


async def test_nothing_acknowledged_is_lost_in_five_kills(tmp_path: Path) -> None:
    report = await torture(tmp_path, kills=5, seed=1)
    assert not report.broken, str(report)
    assert report.kills == 5
    assert report.acknowledged > 1_000
    assert report.delivered > 3_000


async def test_a_stop_under_load_ends_with_0_and_loses_nothing_either(tmp_path: Path) -> None:
    config = tmp_path / "geomqtt.toml"
    config.write_text("stop_timeout_s = 3.0\n")
    arguments = ["--config", str(config)]
    began = time.monotonic()
    report = await torture(tmp_path, kills=3, seed=3, polite=1.0, arguments=arguments)
    assert not report.broken, str(report)
    assert report.stops == 3
    assert report.acknowledged > 500
    assert time.monotonic() - began < 40


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("durability", ["commit", "power"])
async def test_nothing_acknowledged_is_lost_in_fifty_kills(tmp_path: Path, durability: str) -> None:
    config = tmp_path / "geomqtt.toml"
    config.write_text(f'[storage]\ndurability = "{durability}"\n')
    report = await torture(tmp_path, kills=50, seed=2, arguments=["--config", str(config)])
    assert not report.broken, str(report)
    assert report.kills == 50
