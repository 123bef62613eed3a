"""Errors as answers: §10.6's envelope, H1's status, and a request id on every answer."""

from __future__ import annotations

import dataclasses
import logging

from veen_core.api import ErrorDetail, envelope_of
from veen_core.errors import AdmissionError, ApiError, DecodeError, ProofError, VeenError
from veen_core.rejection import HTTP_STATUS, Code
from veen_hub.api.content import reply
from veen_hub.api.reply import Headers, Reply
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.failures import internal_error, storage_failed
from veen_storage import AbsentError, ContentError, LostError, StorageError, TooLargeError


class DetailedError(ApiError):
    """An ``ApiError`` with machine-readable facts in ``detail`` (§10.6)."""

    def __init__(self, code: Code, message: str, detail: ErrorDetail) -> None:
        super().__init__(code, message)
        self.detail = detail


def answer_error(exc: Exception, headers: Headers, path: str, request_id: str) -> Reply:
    """Turn an error of an endpoint into an answer; a bug is answered too, and logged."""
    match exc:
        case VeenError():
            return refuse(headers, as_api_error(exc), request_id)
        case OSError():
            log(logging.ERROR, "storage_failed", error=str(exc), request_id=request_id)
            return refuse(headers, storage_failed(), request_id)
    fields = {"path": path, "request_id": request_id}
    LOGGER.error("handler_failed", exc_info=exc, extra={"fields": fields})
    return refuse(headers, internal_error(), request_id)


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
