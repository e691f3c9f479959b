"""docs/faults.md names tests that exist and limits that there are."""

from __future__ import annotations

import re
from pathlib import Path

from broker.config import Limits

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text()


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 10
    assert named <= there


def test_the_page_names_every_limit() -> None:
    section = PAGE.partition("## Limits")[2].partition("## Faults")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert set(Limits.__struct_fields__) - named == set()
