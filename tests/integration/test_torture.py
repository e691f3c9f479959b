"""Nothing acknowledged is lost when the broker is killed: the short form of the torture."""

from pathlib import Path

import pytest

from tests.integration.torture import torture


async def test_nothing_acknowledged_is_lost_in_five_kills(tmp_path: Path) -> None:
    report = await torture(tmp_path, kills=5, seed=1)
    assert not report.broken, str(report)
    assert report.kills == 5
    assert report.acknowledged > 1_000
    assert report.delivered > 3_000


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("durability", ["commit", "power"])
async def test_nothing_acknowledged_is_lost_in_fifty_kills(tmp_path: Path, durability: str) -> None:
    config = tmp_path / "geomqtt.toml"
    config.write_text(f'[storage]\ndurability = "{durability}"\n')
    report = await torture(tmp_path, kills=50, seed=2, arguments=["--config", str(config)])
    assert not report.broken, str(report)
    assert report.kills == 50
