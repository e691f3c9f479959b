"""The bridge held to its own description: whatever is asked, the answer is one it names."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from plugins.rest_bridge.openapi import document

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
OPERATIONS = [
    (path, method) for path, operations in document()["paths"].items() for method in operations
]
EXAMPLES = 40
SECONDS = 20.0


def answerable(case):
    """Keep to what comes back: a live stream has no end, and a poll shall not wait long."""
    case.headers = {
        name: text
        for name, text in (case.headers or {}).items()
        if name.lower() not in ("accept", "last-event-id")
    }
    if "wait" in (case.query or {}):
        case.query["wait"] = "0.01"


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_one_that_the_description_names(bridge, path, method):
    schema = schemathesis.openapi.from_dict(document())
    schema.config.base_url = bridge.url
    operation = schema[path][method.upper()]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=SECONDS * 1000,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        answerable(case)
        answer = case.call(timeout=SECONDS)
        case.validate_response(answer, checks=CHECKS)

    ask()


NAMES = ["size", "from", "to", "geometry", "relation", "tolerance", "order", "after", "wait"]
SAMPLES = (
    *("0", "1", "-1", "1e400", "nan", "2026-03-28", "2026-03-28/P1D", "newest", "covers"),
    *("POINT(8 54)", "BBOX(8,54,9,55)", "POINT EMPTY", '{"type":"Point","coordinates":[8,54]}'),
    *("2026-03-28.1", "2026-03-28.1~0123456789abcdef.1", "dwithin.5", "de9im.T********", "{}"),
)
VALUES = st.one_of(st.text(max_size=40), st.sampled_from(SAMPLES))


@settings(max_examples=200, deadline=SECONDS * 1000, suppress_health_check=list(HealthCheck))
@given(
    door=st.sampled_from(["publish", "geopublish"]),
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    parameters=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
)
def test_no_parameter_breaks_the_bridge(bridge, door, topic, parameters):
    if "wait" in parameters:
        parameters["wait"] = "0"
    path = "".join(f"%{byte:02x}" for byte in topic.encode())
    answer = httpx.get(f"{bridge.url}/rest/{door}/{path}", params=parameters, timeout=SECONDS)
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["parameter"] in (*parameters, "topic", "query")


def test_the_description_is_served(bridge):
    assert httpx.get(f"{bridge.url}/openapi.json").json() == document()
