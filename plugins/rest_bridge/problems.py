"""What is answered when something is wrong: problem documents (RFC 9457).

`parameter` names the parameter, header or part of the request that is to blame.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that cannot be answered as asked."""

    def __init__(
        self,
        status: int,
        detail: str,
        parameter: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.parameter = parameter
        self.headers = headers or {}


class BadParameter(Problem):
    """A parameter that cannot be used."""

    def __init__(self, parameter: str, detail: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, detail, parameter)


def problem_response(problem: Problem) -> Response:
    """Make the document."""
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": int(problem.status),
        "detail": problem.detail,
    }
    if problem.parameter:
        document["parameter"] = problem.parameter
    return Response(
        msgspec.json.encode(document), problem.status, problem.headers, media_type=MEDIA_TYPE
    )
