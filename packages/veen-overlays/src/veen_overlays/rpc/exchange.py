"""An exchange: a pair of request and reply schemas under RPC0's correlation rules (RPC0.1, P15, P16).

``RPC`` is the exchange of RPC0 itself. Another overlay with schemas of its own, such as discovery's
``disc.query.v1``, declares an ``Exchange``; server, client and call table treat it as they treat ``RPC``. The
fields ``timeout_ms``, ``reply_to`` and ``idem`` are read from the request if its record has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from veen_core.ids import StreamId
from veen_overlays.rpc.records import ErrorBody, Reply, Request
from veen_overlays.schema.record import Record

DEADLINE: Final = "rpc.deadline"
"""The request reached the server after its deadline and was not executed (P15)."""
UNKNOWN_METHOD: Final = "rpc.unknown_method"
BAD_REQUEST: Final = "rpc.bad_request"
"""The body is not a record of its schema."""
BAD_ARGS: Final = "rpc.bad_args"
"""The arguments do not fit the method's parameters."""
BAD_REPLY_TO: Final = "rpc.bad_reply_to"
"""The server does not write to the stream that ``reply_to`` names."""
INTERNAL: Final = "rpc.internal"
"""The method failed in a way that its author has not foreseen; the server's log has the reason."""
INTERRUPTED: Final = "rpc.interrupted"
"""A server died while the method ran, and the method must not run twice: its effect is unknown."""
NO_SERVER: Final = "rpc.no_server"
"""No server that offers the method is alive; the client says so, and nothing was sent."""
NO_REPLY: Final = "rpc.no_reply"
"""No reply arrived in time; the client says so. The method may have run, or may still run."""

NOT_EXECUTED: Final = frozenset((DEADLINE, UNKNOWN_METHOD, BAD_REQUEST, BAD_ARGS, BAD_REPLY_TO))
"""Errors that say that the method did not run: they do not use up an idempotency key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The records of a request and its reply, and how to read and make them."""

    request: type[Record]
    reply: type[Record]
    method_of: Callable[[Any], str]
    """The method that a request asks for."""
    code_of: Callable[[Any], str | None]
    """The error code of a reply; None if it reports success."""
    failed: Callable[[str, str | None], Record]
    """Make the reply that reports an error: its code and its detail."""


def _failed(code: str, detail: str | None) -> Reply:
    return Reply(ok=False, error=ErrorBody(code=code, detail=detail))


def _code_of(reply: Reply) -> str | None:
    return None if reply.error is None else reply.error.code


RPC: Final = Exchange(
    request=Request,
    reply=Reply,
    method_of=lambda request: request.method,
    code_of=_code_of,
    failed=_failed,
)


def timeout_of(request: Record) -> int | None:
    """The request's timeout in milliseconds; None without one."""
    found: int | None = getattr(request, "timeout_ms", None)
    return found


def reply_to_of(request: Record) -> StreamId | None:
    """The stream that the request wants its reply in; None is its own."""
    found: StreamId | None = getattr(request, "reply_to", None)
    return found


def idem_of(request: Record) -> int | None:
    """The request's idempotency key (RPC0.3)."""
    found: int | None = getattr(request, "idem", None)
    return found


def binds(code: str | None) -> bool:
    """Return whether a reply with this error code (None: success) is the answer of an idempotency key."""
    return code not in NOT_EXECUTED


def is_late(hub_ts: int, timeout_ms: int | None, now: int) -> bool:
    """Return whether the deadline, hub_ts + timeout_ms, has passed at ``now`` (P15).

    Both times are times of the hub's receipts, in whole seconds, so a deadline never passes early by a
    fraction of a second that ``hub_ts`` does not show.
    """
    return timeout_ms is not None and now * 1_000 > hub_ts * 1_000 + timeout_ms
