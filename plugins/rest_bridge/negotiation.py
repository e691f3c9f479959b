"""Which form of an answer a request asks for with `Accept`."""

from dataclasses import replace
from http import HTTPStatus

from starlette.requests import Request

from plugins.rest_bridge.problems import Problem
from plugins.rest_bridge.shapes import CSV, LINES, Framing

EVENT_STREAM = Framing("text/event-stream", "json", b"", b"", b"")

_LINES = ("application/x-ndjson", "application/ndjson", "application/geo+x-ndjson")


def choose(request: Request, usual: Framing, *, streams: bool) -> Framing:
    """Choose the form that is liked best; `usual` is what goes by its own name or by JSON."""
    forms = {
        usual.media_type: usual,
        "application/json": replace(usual, media_type="application/json"),
        "text/csv": CSV,
    }
    forms.update((name, LINES) for name in _LINES)
    if streams:
        forms["text/event-stream"] = EVENT_STREAM
    accepted = request.headers.get("accept", "*/*")
    for wanted in _by_liking(accepted):
        for name, framing in forms.items():
            kind = name.partition("/")[0]
            if wanted in (name, "*/*", f"{kind}/*"):
                return framing
    raise Problem(HTTPStatus.NOT_ACCEPTABLE, f"this is to be had as {', '.join(forms)}", "Accept")


def _by_liking(accepted: str) -> list[str]:
    ranges: list[tuple[float, str]] = []
    for part in accepted.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        liking = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    liking = float(parameter[2:])
                except ValueError:
                    liking = 0.0
        if name and liking > 0:
            ranges.append((liking, name))
    ranges.sort(key=lambda each: -each[0])  # stable: the first of the same liking wins
    return [name for _, name in ranges] if ranges else ["*/*"]
