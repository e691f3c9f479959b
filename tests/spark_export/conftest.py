"""One Spark session for all tests here; without Java they are set aside as not run."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spark_export import session
from spark_export.segments import ExportError


def _load(name: str) -> ModuleType:
    """Import a helper that lies beside the tests, which are no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


make_log = _load("make_log")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything here needs Spark, and Spark needs Java."""
    item.add_marker(pytest.mark.needs("java"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    try:
        started = session.start(
            "local[2]",
            # For tables of a few rows, planning and compiling cost more than the work.
            settings={
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
            },
        )
    except ExportError as error:
        pytest.fail(f"not run: {error}", pytrace=False)
    yield started
    started.stop()


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Make an empty data folder with a writer for segments."""
    return make_log.LogMaker(tmp_path / "data")
