"""Which path leads where, and what every answer has in common.

Whatever goes wrong is answered with a problem document. The map and the page for the API
are files; everything else is under `/rest`, except what other programs look for at the
root: `/metrics`, `/health` and `/openapi.json`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from xstatic.pkg import leaflet

from plugins.rest_bridge.events import Events
from plugins.rest_bridge.log_worker import LogFault
from plugins.rest_bridge.openapi import document
from plugins.rest_bridge.problems import Problem, problem_response
from plugins.rest_bridge.views import Views

log = logging.getLogger("geomqtt.rest")

Endpoint = Callable[[Request], Awaitable[Response]]

HERE = Path(__file__).parent
MAP = HERE / "map"
PAGES = HERE / "pages"
METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class TopicConvertor(Convertor[str]):
    """Any text at all: a topic may hold line breaks, where `path` ends."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Leave it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Leave it as it is."""
        return value


register_url_convertor("topic", TopicConvertor())


def make_app(
    publish: Events,
    geopublish: Events,
    views: Views,
    count: Callable[[str], None],
    cors_origins: list[str],
    map_policy: str,
) -> ASGIApp:
    """Put everything in its place."""

    def route(path: str, endpoints: Mapping[str, Endpoint]) -> Route:
        return _route(path, endpoints, count)

    routes: list[BaseRoute] = [
        *(
            route(
                f"{events.prefix}{{topic:topic}}",
                {"GET": events.get, "PUT": events.put, "DELETE": events.delete},
            )
            for events in (publish, geopublish)
        ),
        route("/rest/clients", {"GET": views.clients}),
        route("/rest/fences", {"GET": views.fences}),
        route("/rest/latest/{topic:topic}", {"GET": views.latest}),
        route("/rest/topics/{topic:topic}", {"GET": views.topics}),
        route("/rest/status", {"GET": views.status}),
        route("/rest/map", {"GET": views.map_settings}),
        route("/metrics", {"GET": views.metrics}),
        route("/health", {"GET": views.health}),
        route("/openapi.json", {"GET": _openapi}),
        Mount("/api", StaticFiles(directory=PAGES, html=True)),
        Mount("/leaflet", StaticFiles(directory=leaflet.BASE_DIR)),
        Mount("/", StaticFiles(directory=MAP, html=True, check_dir=False)),
    ]
    middleware = [Middleware(CommonHeaders, policy=map_policy)]
    if cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=cors_origins,
                allow_methods=["GET", "HEAD", "PUT", "DELETE"],
                allow_headers=["Authorization", "Last-Event-ID"],
                expose_headers=["Link", "Last-Event-ID"],
            )
        )
    app = Starlette(
        routes=routes, middleware=middleware, exception_handlers={HTTPException: _http_problem}
    )
    app.router.redirect_slashes = False
    return app


def _route(path: str, endpoints: Mapping[str, Endpoint], count: Callable[[str], None]) -> Route:
    allow = {"Allow": ", ".join([*endpoints, "HEAD", "OPTIONS"])}

    async def answer(request: Request) -> Response:
        method = request.method
        count("rest_requests")
        if method == "OPTIONS":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=allow)
        endpoint = endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            detail = f"{method} is not for this resource"
            return problem_response(Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=allow))
        try:
            return await endpoint(request)
        except Problem as problem:
            count("rest_problems")
            return problem_response(problem)
        except LogFault as fault:
            log.warning("%s %s: %s", method, request.url.path[:100], fault)
            return problem_response(Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(fault)))
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception:
            log.exception("internal error: %s %s", method, request.url.path[:100])
            return problem_response(
                Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this is our fault; the log has more")
            )

    # All methods lead here: those that are left to other routes would find the map's files.
    return Route(path, answer, methods=[*METHODS])


async def _openapi(request: Request) -> Response:
    return Response(msgspec.json.encode(document()), media_type="application/json")


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    details = {404: "there is nothing here", 405: f"{request.method} is not for this resource"}
    problem = Problem(error.status_code, details.get(error.status_code, error.detail))
    problem.headers = dict(error.headers or {})
    return problem_response(problem)


class CommonHeaders:
    """Adds the headers that every answer has, and to pages what they may load."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self._app = app
        self._policy = policy.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with more headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *SECURITY]
                if (b"content-type", b"text/html; charset=utf-8") in headers:
                    headers.append((b"content-security-policy", self._policy))
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_with_headers)
