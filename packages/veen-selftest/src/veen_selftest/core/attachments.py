"""Attachments: content-addressed, hub-blind, behind the same auth stage as a message (H17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen_core import rejection
from veen_core.hashing import H
from veen_core.ids import Coid
from veen_core.status import AttachmentResponse
from veen_selftest.hubs.http_hub import Answer, Hub, refused_by
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, Skip, require, same
from veen_selftest.runner.context import Bench

SEAL: Final = 16
"""Bytes that sealing adds to an attachment (§4.6)."""
LEAST: Final = 128
"""Bytes that an attachment of these checks needs."""


def within(hub: Hub, contents: Sequence[bytes]) -> list[bytes]:
    """As many, and as much of each, as this hub takes: it may have lower limits (§14.1)."""
    limits = hub.known.limits
    if limits.max_attachment_bytes < LEAST or not limits.max_attachments_per_msg:
        raise Skip(f"it takes a hub that stores attachments of {LEAST} bytes (§14.1)")
    most = limits.max_attachment_bytes - SEAL
    return [content[:most] for content in contents[: limits.max_attachments_per_msg]]


def _content(bench: Bench, size: int) -> bytes:
    return bench.chance.randbytes(size)


def put(writer: Writer, content: bytes, **changes: str | None) -> Answer:
    """With the headers that sign it, changed or left out."""
    coid = Coid(H(content))
    headers = writer.attachment_headers(coid)
    for name, value in changes.items():
        headers.pop(name.replace("_", "-"), None)
        if value is not None:
            headers[name.replace("_", "-")] = value
    return writer.hub.call("PUT", f"/v1/attachment/{coid.hex()}", content, headers)


def _round_trip(bench: Bench) -> None:
    """What was put is there, whole, and putting it again changes nothing."""
    hub = bench.hub()
    writer = bench.writer(hub)
    for content in within(hub, [_content(bench, size) for size in (300_000, 1, 0)]):
        first = put(writer, content).read(AttachmentResponse)
        same(first.coid, H(content), "coid")
        fetched = hub.get(f"/v1/attachment/{first.coid.hex()}")
        same((fetched.status, fetched.body), (200, content), "the attachment that is fetched")
        again = put(writer, content).read(AttachmentResponse)
        require(not again.stored, "putting the same attachment again stored it again (H17)")


def _named_by_content(bench: Bench) -> None:
    """A body that is not what its name says is refused and not kept."""
    hub = bench.hub()
    writer = bench.writer(hub)
    (content,) = within(hub, [_content(bench, 100)])
    coid = Coid(H(content))
    answer = hub.call(
        "PUT", f"/v1/attachment/{coid.hex()}", b"something else", writer.attachment_headers(coid)
    )
    require(answer.status != 200, "a body was stored under another coid (H17)")
    same(answer.error.code, "E.BAD_REQUEST", "code of a body that is not its coid's")
    absent = hub.get(f"/v1/attachment/{coid.hex()}")
    same((absent.status, absent.error.code), (404, "E.NOT_FOUND"), "an attachment that was never stored")


def _auth(bench: Bench) -> None:
    """A put passes the auth stage: signature, token, scope (H17)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    (content,) = within(hub, [_content(bench, 50)])
    refused_by(rejection.SIG_INVALID, put(writer, content, VEEN_Sig=bytes(64).hex()))
    refused_by(rejection.SIG_INVALID, put(writer, content, VEEN_Label=bytes(32).hex()))
    same(put(writer, content, VEEN_Sig=None).error.code, "E.UNAUTHORIZED", "code of an unsigned put")
    if hub.known.gating:
        stranger = bench.stranger(hub, "bob")
        refused_by(rejection.CAP_MISSING, put(stranger, content))
        elsewhere = bench.stranger(hub, "carol").authorized(streams=["veen-selftest/elsewhere"])
        refused_by(rejection.CAP_SCOPE, put(elsewhere, content))
        thief = bench.stranger(hub, "mallory")
        thief.auth_ref = writer.auth_ref
        refused_by(rejection.AUTH_REF, put(thief, content))


def _size(bench: Bench) -> None:
    """One that announces more than the limit is refused before a byte is read (§14.1, SH0.4)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    coid = Coid(H(b""))
    headers = writer.attachment_headers(coid)
    headers["Content-Length"] = str(hub.known.limits.max_attachment_bytes + 1)
    refused_by(rejection.SIZE_PREFILTER, hub.call("PUT", f"/v1/attachment/{coid.hex()}", b"", headers))


CHECKS: Final = (
    Check("attachment.round-trip", "H17", _round_trip),
    Check("attachment.named-by-content", "H17", _named_by_content),
    Check("attachment.auth", "H17, §8.1", _auth),
    Check("attachment.size", "§14.1, SH0.4", _size),
)
