"""Errors become HTTP in one place: §10.6's envelope, H1's status, a request id on every answer."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from veen_core.api import ErrorDetail, envelope_of
from veen_core.errors import AdmissionError, ApiError, DecodeError, ProofError, VeenError
from veen_core.rejection import HTTP_STATUS, Code
from veen_hub.http.content import reply
from veen_hub.http.keys import REQUEST_ID, name_request
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.sequencer import storage_failed
from veen_storage import AbsentError, ContentError, LostError, StorageError, TooLargeError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DetailedError(ApiError):
    """An ``ApiError`` with something for machines to read in ``detail`` (§10.6)."""

    def __init__(self, code: Code, message: str, detail: ErrorDetail) -> None:
        super().__init__(code, message)
        self.detail = detail


@web.middleware
async def envelopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The only place that turns an error into an answer."""
    request_id = name_request(request)
    try:
        response = await handler(request)
    except VeenError as exc:
        response = refuse(request, as_api_error(exc))
    except web.HTTPException as exc:
        response = refuse(request, from_http(request, without_frames(exc)))  # the request keeps it
    except web.RequestPayloadError as exc:
        response = refuse(
            request, ApiError(Code.BAD_REQUEST, f"the body cannot be read: {type(exc).__name__}")
        )
    except ConnectionError:
        raise  # the client is gone; there is nobody to answer
    except OSError as exc:
        log(logging.ERROR, "storage", error=str(exc), request_id=request_id)
        response = refuse(request, storage_failed())
    except Exception:  # noqa: BLE001 - logged; a bug is answered like everything else
        LOGGER.exception("bug", extra={"fields": {"path": request.path, "request_id": request_id}})
        response = refuse(request, internal_error())
    if not response.prepared:
        response.headers["VEEN-Request-Id"] = request_id
    return response


def internal_error() -> ApiError:
    """Of a bug, which is logged."""
    return ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)


def as_api_error(exc: VeenError) -> AdmissionError | ApiError:
    """What a client may see of an error, by who can act on it."""
    match exc:
        case AdmissionError() | ApiError():
            return exc
        case AbsentError():
            return ApiError(Code.NOT_FOUND, str(exc))
        case TooLargeError():
            return ApiError(Code.LIMIT, str(exc))
        case ContentError() | DecodeError() | ProofError():
            return ApiError(Code.BAD_REQUEST, str(exc))
        case LostError():  # the operator's to mend: asking again does not bring it back
            log(logging.ERROR, "storage", error=str(exc))
            lost = f"attachment {exc.coid.hex()} was put and is lost on this hub: put it again from a copy"
            return ApiError(Code.NOT_FOUND, lost)
        case StorageError():
            log(logging.ERROR, "storage", error=str(exc))
            return storage_failed()
        case _:
            return ApiError(Code.BAD_REQUEST, str(exc))


def refuse(request: web.Request, error: AdmissionError | ApiError) -> web.Response:
    code = error.rejection.code if isinstance(error, AdmissionError) else error.code
    envelope = envelope_of(error, request.get(REQUEST_ID))
    if isinstance(error, DetailedError):
        envelope = dataclasses.replace(envelope, detail=error.detail)
    response = reply(request, envelope, HTTP_STATUS[code])
    if (request_id := request.get(REQUEST_ID)) is not None:
        response.headers["VEEN-Request-Id"] = request_id
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def from_http(request: web.Request, exc: web.HTTPException) -> ApiError:
    """What aiohttp itself refuses: no such route, wrong method, a request line too long."""
    first = request.path.split("/")[1] if request.path.startswith("/") else ""
    if exc.status == 404 and first.startswith("v") and first[1:].isdecimal() and first != "v1":
        return ApiError(Code.VERSION, f"API version {first} is unknown: this hub speaks /v1")
    if exc.status == 404:
        return ApiError(Code.NOT_FOUND, f"there is no {request.path}")
    return ApiError(Code.LIMIT if exc.status == 413 else Code.BAD_REQUEST, exc.reason)
