"""One fault per row of the admission table; any two that can occur together may be combined.

A ``FaultyMessage`` is one message to a hub. A fault changes the token, the messages sent before, a field, or
the bytes. The fault of a later row does not hide that of an earlier row, so that a message with two faults
shows which row is checked first (§8.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core import rejection
from veen_core.api import wrap_submit
from veen_core.cap import Rate
from veen_core.ids import ClientId
from veen_core.rejection import Rejection
from veen_selftest.hubs.http_hub import HttpHub, HttpResponse
from veen_selftest.peers.writer import Writer, key_of
from veen_selftest.runner.check import Skip
from veen_selftest.runner.context import CheckContext


@dataclass(slots=True)
class FaultyMessage:
    """A message and its faults."""

    fields: dict[str, Any] = field(default_factory=dict)
    token: dict[str, Any] = field(default_factory=dict)
    without_token: bool = False
    earlier: int = 0
    """Number of valid messages sent before."""
    missing_bytes: int = 0
    """Bytes that Content-Length announces in addition to the body."""
    after: bytes = b""
    """Bytes after the end of the message."""

    workless: bool = False
    """Whether the proof of work is left out."""

    def prepare(self, writer: Writer) -> None:
        """Send the earlier messages and authorize the token."""
        if self.earlier:
            writer.hub.accept_many(writer.many(self.earlier))
        if self.token:
            writer.authorized(**self.token)
        if self.without_token:
            writer.auth_ref = None

    def send(self, writer: Writer) -> HttpResponse:
        """Send the message."""
        hub, fields = writer.hub, dict(self.fields)
        wire = writer.message(fields.pop("client_seq", writer.seq + 1), **fields) + self.after
        if self.missing_bytes:
            return hub.post("/v1/submit", b"", Content_Length=str(len(wire) + self.missing_bytes))
        return hub.post("/v1/submit", wrap_submit(wire), work=() if self.workless else [wire])

    def play(self, writer: Writer) -> HttpResponse:
        """Prepare and send the message."""
        self.prepare(writer)
        return self.send(writer)


Fault = Callable[[FaultyMessage], None]


def _too_large(draft: FaultyMessage) -> None:
    draft.missing_bytes = 2**40


def _not_canonical(draft: FaultyMessage) -> None:
    draft.after = b"\x00"


def _short_ciphertext(draft: FaultyMessage) -> None:
    draft.fields["ciphertext"] = b"too short"


def _other_version(draft: FaultyMessage) -> None:
    draft.fields["ver"] = 2


def _other_profile(draft: FaultyMessage) -> None:
    draft.fields["profile_id"] = bytes(32)


def _other_ct_hash(draft: FaultyMessage) -> None:
    draft.fields["ct_hash"] = bytes(32)


def _bad_signature(draft: FaultyMessage) -> None:
    draft.fields["sig"] = bytes(64)


def _no_token(draft: FaultyMessage) -> None:
    draft.without_token = True


def _somebody_elses_token(draft: FaultyMessage) -> None:
    draft.token["subject"] = ClientId(key_of(b"", "somebody else").public)


def _out_of_scope(draft: FaultyMessage) -> None:
    draft.token["streams"] = ["veen-selftest/elsewhere"]


def _no_rate_left(draft: FaultyMessage) -> None:
    draft.token["rate"] = Rate(per_sec=1, burst=0)


def _ahead_of_the_stream(draft: FaultyMessage) -> None:
    draft.fields["prev_ack"] = 99


def _again(draft: FaultyMessage) -> None:
    """Send ``client_seq`` 1 again after two messages: it is a duplicate, and not the next ``client_seq``."""
    draft.earlier = 2
    draft.fields["client_seq"] = 1


def _not_the_next(draft: FaultyMessage) -> None:
    draft.fields.setdefault("client_seq", 7)


FAULTS: Final[dict[Rejection, Fault]] = {
    rejection.SIZE_PREFILTER: _too_large,
    rejection.CBOR_INVALID: _not_canonical,
    rejection.FIELD_SIZE: _short_ciphertext,
    rejection.VERSION: _other_version,
    rejection.PROFILE: _other_profile,
    rejection.CT_HASH: _other_ct_hash,
    rejection.SIG_INVALID: _bad_signature,
    rejection.CAP_MISSING: _no_token,
    rejection.AUTH_REF: _somebody_elses_token,
    rejection.CAP_SCOPE: _out_of_scope,
    rejection.CAP_RATE: _no_rate_left,
    rejection.PREV_ACK: _ahead_of_the_stream,
    rejection.DUPLICATE: _again,
    rejection.CLIENT_SEQ: _not_the_next,
}
"""In the table's order. The other rows need another hub, a wait, or no message: see ``admission``."""

TOKEN_ROWS: Final = {rejection.AUTH_REF, rejection.CAP_SCOPE, rejection.CAP_RATE}


def can_both_be_wrong(a: Rejection, b: Rejection) -> bool:
    """Return whether both faults can be in one message: one without a token cannot have a wrong token."""
    return not (rejection.CAP_MISSING in (a, b) and TOKEN_ROWS & {a, b})


def play(context: CheckContext, hub: HttpHub, rows: Iterable[Rejection]) -> HttpResponse:
    """Send a message with these faults on its own stream."""
    named = "+".join(row.detail for row in rows)
    return draft_with(rows).play(context.writer(hub, on=named))


def draft_with(rows: Iterable[Rejection]) -> FaultyMessage:
    """Return a message with the faults of these rows."""
    draft = FaultyMessage()
    for row in rows:
        FAULTS[row](draft)
    return draft


def wait_until_after(context: CheckContext, hub: HttpHub, when: int) -> None:
    """Wait until the hub's time is past ``when``, at most ``max_wait`` seconds."""
    deadline = time.monotonic() + context.options.max_wait
    while hub.status().hub_ts <= when and time.monotonic() < deadline:
        time.sleep(0.1)


def require_wait(context: CheckContext) -> None:
    """Skip the check unless it may wait for a token of one second to expire."""
    if context.options.max_wait < 4:
        raise Skip("needs 4 s for a token to expire: give --max-wait 4")
