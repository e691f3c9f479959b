"""No normative statement of MQTT 3.1.1 without a test that exists, or a reason."""

from __future__ import annotations

import ast
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# How many statements each section has, from appendix B of the standard.
SECTIONS = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7,
    "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1,
    "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6,
    "3.12.4": 1, "3.14.1": 1, "3.14.4": 3,
    "4.1.0": 2, "4.3.1": 1, "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6,
    "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2,
    "6.0.0": 4, "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip
IDS = [f"MQTT-{name}-{n}" for name, count in SECTIONS.items() for n in range(1, count + 1)]

STATEMENTS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "normative.toml").read_text()
)["statement"]

VECTORS: list[dict[str, Any]] = [
    vector
    for path in sorted((Path(__file__).parent / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text())
]


def test_every_statement_is_listed_once_and_in_order() -> None:
    assert len(IDS) == 141
    assert [statement["id"] for statement in STATEMENTS] == IDS


@pytest.mark.parametrize("statement", STATEMENTS, ids=IDS)
def test_a_statement_has_tests_that_exist_or_a_reason(statement: dict[str, Any]) -> None:
    assert set(statement) <= {"id", "also", "says", "tests", "not_applicable"}
    assert statement["says"]
    assert bool(statement.get("tests")) != bool(statement.get("not_applicable"))
    for name in statement.get("tests", ()):
        path, _, function = name.partition("::")
        assert function in functions(path), name


def test_vectors_name_statements_that_exist() -> None:
    for vector in VECTORS:
        assert set(vector.get("ids", ())) <= set(IDS), vector["name"]


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_a_statement_shown_by_vectors_has_one_of_its_own(kind: str) -> None:
    """All vectors run in a few tests, so naming such a test alone would show nothing."""
    field = "means" if kind == "good" else "error"
    shown = {name for vector in VECTORS if field in vector for name in vector.get("ids", ())}
    claimed = {
        statement["id"]
        for statement in STATEMENTS
        if any(f"::test_a_{kind}_packet" in name for name in statement.get("tests", ()))
    }
    assert claimed - shown == set()


@cache
def functions(path: str) -> set[str]:
    """Give the test functions of a file."""
    return {
        node.name
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
