"""The witness's routes: ``add-checkpoint``, and reading for monitors (C2SP tlog-witness).

All of them are below the configured prefix, which is both the submission and the monitoring prefix:

- ``POST /add-checkpoint``: a cosignature for a checkpoint (``rules``);
- ``GET /<hash>/checkpoint``: the newest cosigned checkpoint of a log, with the log's signatures and the
  witness's; the hash is the SHA-256 of the origin in hex. The editors' copy of tlog-witness has this path;
  ``/checkpoint/<hash>`` serves the same;
- ``GET /logs``: all logs as JSON (``description``);
- ``GET /contradiction/<id>``: one contradiction as CBOR (``contradiction``);
- ``GET /healthz`` and ``GET /metrics``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_core.tlog.add_checkpoint import MAX_REQUEST_BYTES, PATH
from veen_hub.api.content import read_body
from veen_hub.http.bounded_connection import check_head_size
from veen_hub.http.bounded_listener import refuse_in_text
from veen_hub.http.replies import to_response
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER
from veen_hub.witness.description import describe
from veen_hub.witness.rules import TEXT
from veen_hub.witness.witness import Witness

WITNESS = web.AppKey("witness", Witness)
UNSENT: web.AppKey[Callable[[], int]] = web.AppKey("unsent")
"""Returns the bytes of answers that clients have yet to read."""
MAX_UNSENT_BYTES: Final = 64 * 1_048_576
"""Beyond this, the long answers about all logs are refused."""


def make_app(witness: Witness, unsent: Callable[[], int]) -> web.Application:
    # Bodies are bounded where they are read.
    app = web.Application(middlewares=[errors_in_text], client_max_size=2**62)
    app[WITNESS] = witness
    app[UNSENT] = unsent
    prefix = witness.config.listen.prefix
    app.add_routes(
        [
            web.post(f"{prefix}{PATH}", add_checkpoint),
            web.get(f"{prefix}/{{hash:[0-9a-f]{{64}}}}/checkpoint", checkpoint),
            web.get(f"{prefix}/checkpoint/{{hash:[0-9a-f]{{64}}}}", checkpoint),
            web.get(f"{prefix}/contradiction/{{id:[0-9a-f]{{32}}}}", contradiction),
            web.get(f"{prefix}/logs", logs),
            web.get(f"{prefix}/healthz", healthz),
            web.get(f"{prefix}/metrics", metrics),
        ]
    )
    return app


@web.middleware
async def errors_in_text(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error of a handler with one line of text."""
    try:
        check_head_size(request.raw_headers)
        return await handler(request)
    except ApiError as exc:
        return to_response(refuse_in_text(exc))
    except web.HTTPException as exc:
        without_frames(exc)  # the request keeps a reference to it
        return web.Response(status=exc.status, text=f"{exc.reason}: {request.method} {request.path}\n")
    except web.RequestPayloadError as exc:
        error = ApiError(Code.BAD_REQUEST, f"the body cannot be read: {type(exc).__name__}")
        return to_response(refuse_in_text(error))
    except ConnectionError:
        raise  # the client has disconnected: no answer can be sent
    except Exception:  # noqa: BLE001 - logged; a bug is answered too
        LOGGER.exception("handler_failed", extra={"fields": {"path": request.path}})
        error = ApiError(Code.UNAVAILABLE, "internal error: see the witness's log")
        return to_response(refuse_in_text(error))


async def add_checkpoint(request: web.Request) -> web.Response:
    witness = request.app[WITNESS]
    body = await read_body(request, MAX_REQUEST_BYTES, witness.config.listen.request_timeout_sec)
    answer = await witness.add_checkpoint(body)
    headers = {"Content-Type": answer.content_type}
    if answer.status == 503:
        headers["Retry-After"] = "1"
    return web.Response(status=answer.status, body=answer.body.encode(), headers=headers)


async def checkpoint(request: web.Request) -> web.Response:
    witness = request.app[WITNESS]
    origin = witness.by_hash.get(request.match_info["hash"])
    cosigned = witness.state.heads.get(origin) if origin is not None else None
    if cosigned is None:
        raise ApiError(Code.NOT_FOUND, "this witness has cosigned no checkpoint of that log")
    return web.Response(body=cosigned.signed.encode(), headers={"Content-Type": TEXT})


async def contradiction(request: web.Request) -> web.Response:
    state = request.app[WITNESS].state
    for found in state.contradictions.values():
        if (one := found.get(request.match_info["id"])) is not None:
            return web.Response(body=one.encoded, headers={"Content-Type": "application/cbor"})
    raise ApiError(Code.NOT_FOUND, "there is no contradiction with this id")


def only_if_read(handler: Handler) -> Handler:
    """Refuse a request with a long answer while clients leave too many of them unread."""

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.StreamResponse:
        if request.app[UNSENT]() > MAX_UNSENT_BYTES:
            raise ApiError(Code.UNAVAILABLE, "too many answers are still unread", retry_after=1)
        return await handler(request)

    return checked


@only_if_read
async def logs(request: web.Request) -> web.Response:
    witness = request.app[WITNESS]
    return web.json_response(describe(witness.key.verifier, witness.logs, witness.state))


async def healthz(request: web.Request) -> web.Response:
    return web.json_response({"ok": True, "witness": request.app[WITNESS].key.verifier.text})


@only_if_read
async def metrics(request: web.Request) -> web.Response:
    return web.Response(
        body=request.app[WITNESS].metrics.expose(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
