"""The HTTP API: five operations under /api/query and /api/v1/query (query-api-spec §7, 10.2).

| route | operation |
|---|---|
| POST /api/query/submit | accept a query: 202 with its query_id and result_id |
| GET /api/query/status/{result_id} | the state; ``wait`` holds the answer until the query has finished |
| GET /api/query/result/{result_id} | a page of rows, with the digest of the whole result |
| GET /api/query/descriptor/{query_id} | the descriptor, and where it is recorded |
| GET /api/query/evidence/{result_id} | the result file, for ``veen query verify`` |
| GET /api/openapi.json | this API as an OpenAPI document |

Every request is authenticated first. Errors are JSON as 7.6 says; ``errors_as_json`` is the only place that
makes them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_core.errors import ApiError
from veen_overlays.live.query_service.openapi import document
from veen_overlays.live.query_service.principals import Authenticator, ServicePrincipal, subject_text
from veen_overlays.live.query_service.recording import HubUnavailableError
from veen_overlays.live.query_service.service import DEFAULT_PAGE_ROWS, MAX_WAIT_SECONDS, QueryService
from veen_overlays.live.query_service.service_log import LOGGER, log
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.request.descriptor import MAX_DESCRIPTOR_BYTES

SERVICE = web.AppKey("service", QueryService)
AUTHENTICATOR = web.AppKey("authenticator", Authenticator)
PREFIXES: Final = ("/api", "/api/v1")
BODY_TIMEOUT_SEC: Final = 10
MAX_OFFSET: Final = 2**53
CHUNK_BYTES: Final = 262_144
JSON: Final = "application/json"
CBOR: Final = "application/cbor"
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
REQUEST_ID: Final = "X-Request-Id"
_PRINCIPAL: Final = "principal"
_OPERATION: Final = "operation"
_REQUEST_ID: Final = "request_id"


def make_app(service: QueryService, authenticator: Authenticator) -> web.Application:
    """Return the application; the server that runs it must bound connections and request heads."""
    app = web.Application(
        middlewares=[errors_as_json, authenticated], client_max_size=MAX_DESCRIPTOR_BYTES + 1
    )
    app[SERVICE], app[AUTHENTICATOR] = service, authenticator
    for prefix in PREFIXES:
        app.router.add_post(f"{prefix}/query/submit", submit)
        for path, handler in (
            ("query/status/{name}", status),
            ("query/result/{name}", result),
            ("query/descriptor/{name}", descriptor),
            ("query/evidence/{name}", evidence),
            ("openapi.json", openapi),
        ):
            app.router.add_get(f"{prefix}/{path}", handler, allow_head=False)
    return app


# --- what every request passes


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as query-api-spec 7.6 says, and count and log the request."""
    request[_REQUEST_ID], request[_OPERATION] = secrets.token_hex(8), "unknown"
    response = await _answer(request, handler)
    if not response.prepared:
        response.headers.update({**HEADERS, REQUEST_ID: request[_REQUEST_ID]})
    service, principal = request.app[SERVICE], request.get(_PRINCIPAL)
    service.counters.requests[request[_OPERATION], response.status] += 1
    if principal is None:
        service.counters.unauthenticated += 1
    log(
        logging.INFO,
        "request",
        operation=request[_OPERATION],
        status=response.status,
        principal=principal.name if principal is not None else None,
        request_id=request[_REQUEST_ID],
        remote=request.remote,
    )
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except QueryError as exc:
        return _refusal(exc)
    except HubUnavailableError as exc:
        log(logging.WARNING, "hub_unavailable", error=str(exc), request_id=request[_REQUEST_ID])
        return _error(503, "internal_error", str(exc), {"Retry-After": "2"})
    except ApiError as exc:  # the server is shutting down, or the head is too long
        return _error(503, "internal_error", exc.message, {"Retry-After": "5"})
    except web.HTTPException as exc:
        return _http_error(request, exc)
    except (web.RequestPayloadError, TimeoutError) as exc:
        return _error(400, "invalid_json", f"the body cannot be read: {type(exc).__name__}")
    except ConnectionError:
        raise  # the client has disconnected: no answer can be sent
    except Exception:  # noqa: BLE001 - logged; a bug is answered too
        LOGGER.exception("handler_failed", extra={"fields": {"request_id": request[_REQUEST_ID]}})
        return _error(
            500, "internal_error", f"this is a bug: see the service's log, request {request[_REQUEST_ID]}"
        )


def _refusal(error: QueryError) -> web.Response:
    headers = {}
    if error.code is QueryErrorCode.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="veen-query"'
    if error.code in (QueryErrorCode.RESULT_NOT_READY, QueryErrorCode.LIMIT_EXCEEDED):
        headers["Retry-After"] = "1"
    return _error(error.status, str(error.code), str(error), headers)


def _http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    """Translate a refusal by aiohttp: an unknown route, a wrong method, a body that is too long."""
    if error.status == 404:
        return _error(404, "query_not_found", "there is no such resource; see /api/openapi.json")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{request.method} is not allowed here; use {allowed}"
        return _error(405, "method_not_allowed", message, {"Allow": allowed})
    if error.status == 413:
        return _error(400, "invalid_json", f"the body has more than {MAX_DESCRIPTOR_BYTES} bytes")
    return _error(error.status, "invalid_json", error.reason)


def _error(status_: int, code: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = json.dumps({"error_code": code, "message": message})
    return web.Response(status=status_, text=body, content_type=JSON, headers=headers)


@web.middleware
async def authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticate a request before any other check (query-api-spec 7.1)."""
    certificate = request.get_extra_info("peercert")
    request[_PRINCIPAL] = request.app[AUTHENTICATOR].authenticate(
        request.headers.get("Authorization"), subject_text(certificate)
    )
    request[_OPERATION] = getattr(handler, "__name__", "unknown")
    return await handler(request)


def _principal(request: web.Request) -> ServicePrincipal:
    principal = request[_PRINCIPAL]
    assert isinstance(principal, ServicePrincipal)
    return principal


@asynccontextmanager
async def _audited_if_refused(request: web.Request, resource: str) -> AsyncIterator[None]:
    """Audit an access whose body or parameters are refused; the service audits those that reach it."""
    try:
        yield
    except (QueryError, web.HTTPException, web.RequestPayloadError, TimeoutError) as exc:
        unreadable = QueryError(QueryErrorCode.INVALID_JSON, "the body cannot be read")
        error = exc if isinstance(exc, QueryError) else unreadable
        await request.app[SERVICE].audit_refusal(_principal(request), request[_OPERATION], resource, error)
        raise


# --- the operations


async def submit(request: web.Request) -> web.Response:
    """Accept a query (7.2)."""
    async with _audited_if_refused(request, "-"):
        if request.content_type != JSON and "Content-Type" in request.headers:
            raise QueryError(
                QueryErrorCode.INVALID_JSON,
                "the Content-Type of the request is not JSON",
                action=f"send Content-Type: {JSON}",
            )
        async with asyncio.timeout(BODY_TIMEOUT_SEC):
            body = await request.read()
    job = await request.app[SERVICE].submit(_principal(request), body)
    answer = {"query_id": job.query_id, "result_id": job.result_id, "status": str(job.state)}
    location = f"{request.path.removesuffix('submit')}status/{job.result_id}"
    return web.json_response(answer, status=202, headers={"Location": location})


async def status(request: web.Request) -> web.Response:
    """Return the state of a query (7.3)."""
    name = request.match_info["name"]
    async with _audited_if_refused(request, name):
        wait = _number(request, "wait", 0, MAX_WAIT_SECONDS)
    job = await request.app[SERVICE].status(_principal(request), name, wait)
    return web.json_response(
        {
            "query_id": job.query_id,
            "result_id": job.result_id,
            "status": str(job.state),
            "error_code": job.error_code,
            "message": job.message,
        }
    )


async def result(request: web.Request) -> web.Response:
    """Return a page of rows (7.4)."""
    name = request.match_info["name"]
    async with _audited_if_refused(request, name):
        offset = _number(request, "offset", 0, MAX_OFFSET)
        limit = _number(request, "limit", DEFAULT_PAGE_ROWS, MAX_OFFSET, least=1)
    found = await request.app[SERVICE].result(_principal(request), name, offset, limit)
    page = found.page
    shown = {
        "offset": found.offset,
        "limit": found.limit,
        "total": page.total,
        "has_more": found.offset + page.count < page.total,
    }
    # The rows and the digest are canonical JSON already; they are sent as they were hashed.
    parts = (
        b'{"page":%b,"record_event":%b,"result_digest":%b,"rows":['
        % (canonical_json.encode(shown), canonical_json.encode(found.result), found.digest.encode()),
        page.rows,
        b"]}",
    )
    return web.Response(body=b"".join(parts), content_type=JSON)


async def descriptor(request: web.Request) -> web.Response:
    """Return a recorded descriptor (7.5)."""
    job = await request.app[SERVICE].descriptor(_principal(request), request.match_info["name"])
    assert job.request is not None
    body = b'{"descriptor":%b,"record_event":%b}' % (
        job.descriptor.encode(),
        canonical_json.encode(job.request.as_json()),
    )
    return web.Response(body=body, content_type=JSON)


async def evidence(request: web.Request) -> web.StreamResponse:
    """Return the result file: rows, digest, evidence and coverage in one."""
    name = request.match_info["name"]
    with await request.app[SERVICE].evidence(_principal(request), name) as file:
        response = web.StreamResponse(
            headers={
                **HEADERS,
                REQUEST_ID: request[_REQUEST_ID],
                "Content-Type": CBOR,
                "Content-Disposition": f'attachment; filename="{name}.veenq"',
            }
        )
        response.content_length = os.fstat(file.fileno()).st_size
        await response.prepare(request)
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            await response.write(chunk)
    await response.write_eof()
    return response


async def openapi(_request: web.Request) -> web.Response:
    """Return the OpenAPI document."""
    return web.json_response(document())


def _number(request: web.Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    """Read an integer parameter of the query string; refuse another value, and a repeated parameter."""
    given: list[Any] = request.query.getall(name, [])
    if not given:
        return default
    text = given[0]
    if len(given) > 1 or not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise _bad_number(name, least, most)
    value = int(text)
    if not least <= value <= most:
        raise _bad_number(name, least, most)
    return value


def _bad_number(name: str, least: int, most: int) -> QueryError:
    return QueryError(
        QueryErrorCode.INVALID_QUERY_DESCRIPTOR,
        f"{name} (query-api §7.4): is not one integer from {least} to {most}",
        action=f"write {name}=N, or leave it out",
    )
