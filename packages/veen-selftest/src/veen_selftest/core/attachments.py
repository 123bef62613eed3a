"""Attachments: named by their hash, opaque to the hub, admitted by the auth stage of messages (H17)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

from veen_core import rejection
from veen_core.hashing import H
from veen_core.ids import Coid
from veen_core.status import AttachmentResponse
from veen_selftest.hubs.http_hub import HttpHub, HttpResponse, require_refused_by
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, Skip, require, require_equal
from veen_selftest.runner.context import CheckContext

SEAL_BYTES: Final = 16
"""Bytes that sealing adds to an attachment (core §4.6)."""
MIN_ATTACHMENT_BYTES: Final = 128
"""Smallest limit with which these checks work."""


def within(hub: HttpHub, contents: Sequence[bytes]) -> list[bytes]:
    """Truncate attachments to the hub's limits, in number and size (core §14.1)."""
    limits = hub.known.limits
    if limits.max_attachment_bytes < MIN_ATTACHMENT_BYTES or not limits.max_attachments_per_msg:
        raise Skip(f"needs a hub that stores attachments of {MIN_ATTACHMENT_BYTES} bytes (core §14.1)")
    most = limits.max_attachment_bytes - SEAL_BYTES
    return [content[:most] for content in contents[: limits.max_attachments_per_msg]]


def _content(context: CheckContext, size: int) -> bytes:
    return context.rng.randbytes(size)


def put(writer: Writer, content: bytes, **changes: str | None) -> HttpResponse:
    """Upload an attachment with its signed headers, some of them changed or left out."""
    coid = Coid(H(content))
    headers = writer.attachment_headers(coid)
    for name, value in changes.items():
        headers.pop(name.replace("_", "-"), None)
        if value is not None:
            headers[name.replace("_", "-")] = value
    return writer.hub.call("PUT", f"/v1/attachment/{coid.hex()}", content, headers)


def _round_trip(context: CheckContext) -> None:
    """A stored attachment is returned unchanged, and storing it again changes nothing (H17)."""
    hub = context.hub()
    writer = context.writer(hub)
    for content in within(hub, [_content(context, size) for size in (300_000, 1, 0)]):
        first = put(writer, content).read(AttachmentResponse)
        require_equal(first.coid, H(content), "coid")
        fetched = hub.get(f"/v1/attachment/{first.coid.hex()}")
        require_equal((fetched.status, fetched.body), (200, content), "the attachment that is fetched")
        again = put(writer, content).read(AttachmentResponse)
        require(not again.stored, "the same attachment was stored a second time (RESOLUTIONS H17)")


def _named_by_content(context: CheckContext) -> None:
    """A body whose hash is not its name is refused and not stored (H17)."""
    hub = context.hub()
    writer = context.writer(hub)
    (content,) = within(hub, [_content(context, 100)])
    coid = Coid(H(content))
    answer = hub.call(
        "PUT", f"/v1/attachment/{coid.hex()}", b"something else", writer.attachment_headers(coid)
    )
    require(answer.status != 200, "a body was stored under another coid (H17)")
    require_equal(answer.error.code, "E.BAD_REQUEST", "code of a body that is not its coid's")
    absent = hub.get(f"/v1/attachment/{coid.hex()}")
    require_equal(
        (absent.status, absent.error.code), (404, "E.NOT_FOUND"), "an attachment that was never stored"
    )


def _auth(context: CheckContext) -> None:
    """An upload passes the auth stage: signature, token, scope (H17)."""
    hub = context.hub()
    writer = context.writer(hub)
    (content,) = within(hub, [_content(context, 50)])
    require_refused_by(rejection.SIG_INVALID, put(writer, content, VEEN_Sig=bytes(64).hex()))
    require_refused_by(rejection.SIG_INVALID, put(writer, content, VEEN_Label=bytes(32).hex()))
    require_equal(
        put(writer, content, VEEN_Sig=None).error.code, "E.UNAUTHORIZED", "code of an unsigned upload"
    )
    if hub.known.gating:
        stranger = context.writer_without_token(hub, "bob")
        require_refused_by(rejection.CAP_MISSING, put(stranger, content))
        elsewhere = context.writer_without_token(hub, "carol").authorized(streams=["veen-selftest/elsewhere"])
        require_refused_by(rejection.CAP_SCOPE, put(elsewhere, content))
        thief = context.writer_without_token(hub, "mallory")
        thief.auth_ref = writer.auth_ref
        require_refused_by(rejection.AUTH_REF, put(thief, content))


def _size(context: CheckContext) -> None:
    """An upload that announces more than the limit is refused before its body is read (core §14.1, SH0.4)."""
    hub = context.hub()
    writer = context.writer(hub)
    coid = Coid(H(b""))
    headers = writer.attachment_headers(coid)
    headers["Content-Length"] = str(hub.known.limits.max_attachment_bytes + 1)
    require_refused_by(
        rejection.SIZE_PREFILTER, hub.call("PUT", f"/v1/attachment/{coid.hex()}", b"", headers)
    )


def or_refused(run: Callable[[CheckContext], None]) -> Callable[[CheckContext], None]:
    """Over NATS, require that an attachment is refused by an error that names HTTP (DR0)."""

    @functools.wraps(run)
    def check(context: CheckContext) -> None:
        hub = context.hub()
        if hub.carries_attachments:
            run(context)
            return
        writer, content = context.writer(hub), _content(context, 20)
        for answer in (put(writer, content), hub.get(f"/v1/attachment/{H(content).hex()}")):
            require(answer.status != 200, "an attachment was accepted over NATS (DR0)")
            require("HTTP" in answer.error.message, "the refusal of an attachment does not name HTTP (DR0)")

    return check


CHECKS: Final = (
    Check("attachment.round-trip", "H17", or_refused(_round_trip)),
    Check("attachment.named-by-content", "H17", or_refused(_named_by_content)),
    Check("attachment.auth", "H17, core §8.1", or_refused(_auth)),
    Check("attachment.size", "core §14.1, SH0.4", or_refused(_size)),
)
