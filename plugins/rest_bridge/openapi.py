"""The description of the REST interface (OpenAPI 3.1), as data."""

from typing import Any


def document() -> dict[str, Any]:
    """Give the whole document."""
    return {"openapi": "3.1.0", "info": {"title": "GeoMQTT", "version": "1"}, "paths": {}}
