"""Errors of HTTP handlers as answers; the API's own errors are translated by ``veen_hub.api.errors``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api.errors import answer_error, refuse
from veen_hub.api.routes import no_such_path
from veen_hub.http.replies import to_response
from veen_hub.http.request_names import name_request
from veen_hub.ops.garbage import without_frames

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def envelopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a handler into an answer."""
    request_id = name_request(request)
    try:
        response = await handler(request)
    except ConnectionError:
        raise  # the client has disconnected: no answer can be sent
    except web.HTTPException as exc:
        error = from_http(request, without_frames(exc))  # the request keeps a reference to it
        return to_response(refuse(request.headers, error, request_id))
    except web.RequestPayloadError as exc:
        error = ApiError(Code.BAD_REQUEST, f"the body cannot be read: {type(exc).__name__}")
        return to_response(refuse(request.headers, error, request_id))
    except Exception as exc:  # noqa: BLE001 - a bug is answered too
        return to_response(answer_error(exc, request.headers, request.path, request_id))
    if not response.prepared:
        response.headers["VEEN-Request-Id"] = request_id
    return response


def from_http(request: web.BaseRequest, exc: web.HTTPException) -> ApiError:
    """Translate a refusal by aiohttp: an unknown route, a wrong method, a request line that is too long."""
    if exc.status == 404:
        return no_such_path(request.path)
    return ApiError(Code.LIMIT if exc.status == 413 else Code.BAD_REQUEST, exc.reason)
