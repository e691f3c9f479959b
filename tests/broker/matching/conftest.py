"""Cells learn from visits; here they learn fast, so that tests see them young and old."""

from collections.abc import Iterator

import pytest

from broker.matching import cells


@pytest.fixture(scope="module", autouse=True)
def quick_learners() -> Iterator[None]:
    """Let cells learn at the third visit and split at the fifth."""
    shipped = cells.LEARN_VISITS, cells.SPLIT_VISITS
    cells.LEARN_VISITS, cells.SPLIT_VISITS = 3, 5
    yield
    cells.LEARN_VISITS, cells.SPLIT_VISITS = shipped
