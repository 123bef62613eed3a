"""Errors as HTTP answers: §10.6's envelope, H1's status, and a request id on every answer."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from veen_core.api import ErrorDetail, envelope_of
from veen_core.errors import AdmissionError, ApiError, DecodeError, ProofError, VeenError
from veen_core.rejection import HTTP_STATUS, Code
from veen_hub.http.content import Headers, Reply, reply
from veen_hub.http.request_ids import name_request
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.failures import internal_error, storage_failed
from veen_storage import AbsentError, ContentError, LostError, StorageError, TooLargeError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DetailedError(ApiError):
    """An ``ApiError`` with machine-readable facts in ``detail`` (§10.6)."""

    def __init__(self, code: Code, message: str, detail: ErrorDetail) -> None:
        super().__init__(code, message)
        self.detail = detail


@web.middleware
async def envelopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error of a handler into an answer."""
    request_id = name_request(request)
    try:
        response = await handler(request)
    except VeenError as exc:
        return refuse(request.headers, as_api_error(exc), request_id).to_response()
    except web.HTTPException as exc:
        error = from_http(request, without_frames(exc))  # the request keeps a reference to it
        return refuse(request.headers, error, request_id).to_response()
    except web.RequestPayloadError as exc:
        error = ApiError(Code.BAD_REQUEST, f"the body cannot be read: {type(exc).__name__}")
        return refuse(request.headers, error, request_id).to_response()
    except ConnectionError:
        raise  # the client has disconnected: no answer can be sent
    except OSError as exc:
        log(logging.ERROR, "storage_failed", error=str(exc), request_id=request_id)
        return refuse(request.headers, storage_failed(), request_id).to_response()
    except Exception:  # noqa: BLE001 - logged; a bug is answered too
        LOGGER.exception("handler_failed", extra={"fields": {"path": request.path, "request_id": request_id}})
        return refuse(request.headers, internal_error(), request_id).to_response()
    if not response.prepared:
        response.headers["VEEN-Request-Id"] = request_id
    return response


def as_api_error(exc: VeenError) -> AdmissionError | ApiError:
    """Return the error that a client may see; reasons that only the operator can act on are logged."""
    match exc:
        case AdmissionError() | ApiError():
            return exc
        case AbsentError():
            return ApiError(Code.NOT_FOUND, str(exc))
        case TooLargeError():
            return ApiError(Code.LIMIT, str(exc))
        case ContentError() | DecodeError() | ProofError():
            return ApiError(Code.BAD_REQUEST, str(exc))
        case LostError():  # not E.UNAVAILABLE: a retry would not help
            log(logging.ERROR, "attachment_lost", error=str(exc))
            lost = f"attachment {exc.coid.hex()} was stored and is lost on this hub: upload it again"
            return ApiError(Code.NOT_FOUND, lost)
        case StorageError():
            log(logging.ERROR, "storage_failed", error=str(exc))
            return storage_failed()
        case _:
            return ApiError(Code.BAD_REQUEST, str(exc))


def refuse(headers: Headers, error: AdmissionError | ApiError, request_id: str) -> Reply:
    """Encode an error in the form that the request's headers ask for."""
    code = error.rejection.code if isinstance(error, AdmissionError) else error.code
    envelope = envelope_of(error, request_id)
    if isinstance(error, DetailedError):
        envelope = dataclasses.replace(envelope, detail=error.detail)
    answer = reply(headers, envelope, HTTP_STATUS[code])
    answer.headers["VEEN-Request-Id"] = request_id
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    if answer.status == 404:  # a cache may keep a 404 by itself (RFC 9110 §15.5.5), and a tile may exist soon
        answer.headers["Cache-Control"] = "no-store"
    return answer


def from_http(request: web.BaseRequest, exc: web.HTTPException) -> ApiError:
    """Translate a refusal by aiohttp: an unknown route, a wrong method, a request line that is too long."""
    first = request.path.split("/")[1] if request.path.startswith("/") else ""
    if exc.status == 404 and first.startswith("v") and first[1:].isdecimal() and first != "v1":
        return ApiError(Code.VERSION, f"API version {first} is unknown: this hub speaks /v1")
    if exc.status == 404:
        return ApiError(Code.NOT_FOUND, f"there is no {request.path}")
    return ApiError(Code.LIMIT if exc.status == 413 else Code.BAD_REQUEST, exc.reason)
