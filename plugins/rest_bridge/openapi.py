"""The description of the REST interface (OpenAPI 3.1), as data.

Made of the same constants that requests are read with. The page under `/api/` shows it, and
the property tests hold the bridge to it.
"""

from functools import cache
from importlib.metadata import version
from typing import Any

from plugins.rest_bridge.parameters import MAX_SIZE, MAX_WAIT_S, TOLERANCE_M
from plugins.rest_bridge.shapes import COLUMNS
from plugins.rest_bridge.views import MAX_TOPICS
from protocol.relations import RELATIONS

Data = dict[str, Any]

INTRODUCTION = """Events of the broker over HTTP. Events that carry a place are under
`/rest/geopublish`, the others under `/rest/publish`; the rest of the path is the topic, with
`+` and `%23` (an encoded `#`) as wildcards where events are asked for."""

WORDS = "|".join(name for name in RELATIONS if name not in ("de9im", "dwithin"))
DE9IM = r"de9im\.[TF*012]{9}"
DWITHIN = r"dwithin\.[0-9]{1,7}(\.[0-9]{1,6})?"
INSTANT = "ISO 8601 (`2026-03-28T11:15:00Z`) or Unix seconds"
GEOMETRY = (
    "WKT, EWKT (`SRID=25832;POINT(…)`), `BBOX(minx,miny,maxx,maxy)`, `BUFFER(<WKT>,metres)` "
    "or GeoJSON; x is longitude"
)


def _parameter(name: str, description: str, schema: Data, *, required: bool = False) -> Data:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema,
    }


FROM = _parameter(
    "from",
    f"Events that have not ended before this instant: {INSTANT}.",
    {"type": "string", "examples": ["2026-03-28T00:00:00Z"]},
)
TO = _parameter(
    "to",
    f"Events that begin before this instant: {INSTANT}.",
    {"type": "string", "examples": ["2026-03-29T00:00:00Z"]},
)
PLACE = [
    _parameter(
        "geometry",
        f"Events in this geometry: {GEOMETRY}.",
        {"type": "string", "examples": ["BBOX(8.5,54.4,8.7,54.6)"]},
    ),
    _parameter(
        "relation",
        "How the geometry lies to the event, read *geometry REL event*; `covers` unless told.",
        {"type": "string", "pattern": f"^({WORDS}|{DE9IM}|{DWITHIN})$", "examples": ["intersects"]},
    ),
    _parameter(
        "tolerance",
        f"Widen the geometry by so many metres; {TOLERANCE_M:g} for a line or a point if no "
        "relation is given, else 0.",
        {"type": "number", "minimum": 0, "maximum": 10_000_000},
    ),
]
PAGE = [
    _parameter(
        "size",
        "At most so many events; without it, all of them.",
        {"type": "integer", "minimum": 1, "maximum": MAX_SIZE},
    ),
    _parameter(
        "order",
        "Which end of the log comes first.",
        {"type": "string", "enum": ["newest", "oldest"], "default": "newest"},
    ),
    _parameter(
        "after",
        "Go on behind the event with this id, in the order asked for.",
        {
            "type": "string",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\.[0-9]{1,18}(~[0-9a-f]{16}\.[0-9]{1,9})?$",
            "examples": ["2026-03-28.17"],
        },
    ),
    _parameter(
        "wait",
        "Long poll: answer as soon as there is an event (behind `after`, or from now on), or "
        "with none after so many seconds. The header `Last-Event-ID` is the next `after`.",
        {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S},
    ),
]
PUBLISH = [
    _parameter("qos", "Quality of service.", {"type": "integer", "enum": [0, 1, 2], "default": 0}),
    _parameter(
        "retain",
        "Keep it for those who subscribe later; an empty body clears what is kept.",
        {"type": "boolean", "default": False},
    ),
]
PUBLISH_PLACE = [
    _parameter(
        "time",
        f"When it happened: {INSTANT}, or an interval `start/end`.",
        {"type": "string", "examples": ["2026-03-28T11:15:00Z"]},
        required=True,
    ),
    _parameter(
        "geometry",
        f"Where it happened: {GEOMETRY}.",
        {"type": "string", "examples": ["POINT(8.58 54.51)"]},
        required=True,
    ),
]
RESUME = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "Of a live stream: resume behind this event, from the log and without a gap.",
    "schema": {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\.[0-9]{1,18}$"},
}


def _topic(description: str, example: str) -> Data:
    return {
        "name": "topic",
        "in": "path",
        "required": True,
        "description": f"{description} Its slashes stand in the path as they are.",
        "schema": {"type": "string", "minLength": 1},
        "example": example,
    }


FILTER = _topic(
    "A topic filter: `+` for one level, `%23` for all that follow.", "node/+/temperature"
)
TOPIC = _topic("A topic without wildcards.", "node/7/temperature")

PROBLEM = {
    "description": "What is wrong, and with which parameter.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
EVENT_PROPERTIES: Data = {
    "topic": {"type": "string"},
    "client": {"type": "string", "description": "Who published it."},
    "qos": {"type": "integer", "enum": [0, 1, 2]},
    "retain": {"type": "boolean"},
    "time": {"type": "string", "description": "Its own time, an instant or an interval."},
    "received": {"type": "string"},
    "payload": {"type": "string"},
    "payload_base64": {"type": "string", "description": "Instead, if it is no UTF-8."},
}
EVENT_REQUIRED = ["topic", "client", "qos", "retain", "time", "received"]
SCHEMAS: Data = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "parameter": {"type": "string"},
        },
    },
    "Event": {
        "type": "object",
        "required": EVENT_REQUIRED,
        "properties": {"id": {"type": "string"}, **EVENT_PROPERTIES},
    },
    "Feature": {
        "type": "object",
        "required": ["type", "geometry", "properties"],
        "properties": {
            "type": {"const": "Feature"},
            "id": {"type": "string"},
            "geometry": {"$ref": "#/components/schemas/Geometry"},
            "properties": {"type": "object"},
        },
    },
    "EventFeature": {
        "allOf": [
            {"$ref": "#/components/schemas/Feature"},
            {
                "properties": {
                    "properties": {
                        "type": "object",
                        "required": EVENT_REQUIRED,
                        "properties": EVENT_PROPERTIES,
                    }
                }
            },
        ]
    },
    "Geometry": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "coordinates": {"type": "array"}},
    },
    "Events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
    "FeatureCollection": {
        "type": "object",
        "required": ["type", "features"],
        "properties": {
            "type": {"const": "FeatureCollection"},
            "features": {"type": "array", "items": {"$ref": "#/components/schemas/Feature"}},
        },
    },
    "EventFeatureCollection": {
        "type": "object",
        "required": ["type", "features"],
        "properties": {
            "type": {"const": "FeatureCollection"},
            "features": {"type": "array", "items": {"$ref": "#/components/schemas/EventFeature"}},
        },
    },
}


def _content(schema: str, media_type: str) -> Data:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _events_content(*, geo: bool, streams: bool) -> Data:
    schema = "EventFeatureCollection" if geo else "Events"
    content = _content(schema, "application/json")
    if geo:
        content = _content(schema, "application/geo+json") | content
    content["application/x-ndjson"] = {"schema": {"type": "string"}}
    content["text/csv"] = {
        "schema": {"type": "string", "description": f"Columns: {', '.join(COLUMNS)}."}
    }
    if streams:
        content["text/event-stream"] = {
            "schema": {"type": "string", "description": "Events as they happen, one each."}
        }
    return content


def _answers(success: Data, *statuses: int) -> Data:
    """List the answers of an operation; 401 and 403 are possible everywhere."""
    return success | {str(status): PROBLEM for status in (401, 403, *statuses)}


def _events(*, geo: bool) -> Data:
    tag = "geopublish" if geo else "publish"
    what = "events with a place" if geo else "events without a place"
    find = [FROM, TO, *(PLACE if geo else [])]
    found = {"200": {"description": f"The {what}.", "content": {}}}
    get: Data = {
        "operationId": f"get_{tag}",
        "tags": ["events"],
        "summary": f"Find {what}, or watch them happen",
        "parameters": [FILTER, *find, *PAGE, RESUME],
        "responses": _answers(
            {
                "200": {
                    **found["200"],
                    "headers": {
                        "Link": {
                            "description": 'The next page, `rel="next"`, if there may be one.',
                            "schema": {"type": "string"},
                        }
                    },
                    "content": _events_content(geo=geo, streams=True),
                }
            },
            400,
            406,
            503,
        ),
    }
    put: Data = {
        "operationId": f"put_{tag}",
        "tags": ["events"],
        "summary": "Publish the body",
        "parameters": [TOPIC, *(PUBLISH_PLACE if geo else []), *PUBLISH],
        "requestBody": {
            "required": False,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
        "responses": _answers({"204": {"description": "Published."}}, 400, 413),
    }
    delete: Data = {
        "operationId": f"delete_{tag}",
        "tags": ["events"],
        "summary": f"Delete {what} from the log",
        "parameters": [FILTER, *find],
        "responses": _answers(
            {
                "200": {
                    "description": "What was deleted.",
                    "content": _events_content(geo=geo, streams=False),
                }
            },
            400,
            406,
            503,
        ),
    }
    return {"get": get, "put": put, "delete": delete}


def _view(name: str, summary: str, content: Data, *statuses: int, **more: Any) -> Data:
    return {
        "get": {
            "operationId": name,
            "tags": ["broker"],
            "summary": summary,
            "responses": _answers(
                {"200": {"description": summary + ".", "content": content}}, 400, *statuses
            ),
            **more,
        }
    }


def _object() -> Data:
    return {"application/json": {"schema": {"type": "object"}}}


@cache
def document() -> Data:
    """Give the whole document."""
    features = _content("FeatureCollection", "application/geo+json")
    names = {"schema": {"type": "array", "items": {"type": "string"}}}
    latest_parameters = [
        FILTER,
        _parameter(
            "by", "One event of each of these.", {"type": "string", "enum": ["client", "topic"]}
        ),
        _parameter("since", f"Not those received before: {INSTANT}.", {"type": "string"}),
    ]
    topics_size = {"type": "integer", "minimum": 1, "maximum": MAX_TOPICS, "default": 1000}
    health = _view("health", "Whether the broker does its work", _object(), 503, security=[])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GeoMQTT",
            "version": version("geomqtt"),
            "description": INTRODUCTION,
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": {
            "/rest/publish/{topic}": _events(geo=False),
            "/rest/geopublish/{topic}": _events(geo=True),
            "/rest/latest/{topic}": _view(
                "latest",
                "The newest event with a place of every client or topic",
                _events_content(geo=True, streams=False),
                406,
                503,
                parameters=latest_parameters,
            ),
            "/rest/topics/{topic}": _view(
                "topics",
                "Topics of the log",
                {"application/json": names},
                503,
                parameters=[FILTER, _parameter("size", "At most so many.", topics_size)],
            ),
            "/rest/clients": _view(
                "clients", "Where clients were last known to be, for those who may see", features
            ),
            "/rest/fences": _view("fences", "The geofences in force", features),
            "/rest/status": _view("status", "What is the case, and what was counted", _object()),
            "/rest/map": _view("map", "What the map needs to know", _object()),
            "/metrics": _view(
                "metrics", "For Prometheus", {"text/plain": {"schema": {"type": "string"}}}
            ),
            "/health": health,
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "tags": [
            {"name": "events", "description": "What happened, what happens, what shall happen."},
            {"name": "broker", "description": "The broker itself."},
        ],
    }
