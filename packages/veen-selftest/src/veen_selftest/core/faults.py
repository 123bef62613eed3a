"""One fault per row of the admission table, made so that any two that can be wrong at once may be combined.

A ``Draft`` is one message to a hub. A fault says what it changes: the token, what was sent before, a field,
or the bytes. Faults of later rows do not disturb those of earlier ones, so that a draft with two of them
shows which row is looked at first (§8.1).
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
from veen_selftest.hubs.http_hub import Answer, Hub
from veen_selftest.peers.writer import Writer, key_of
from veen_selftest.runner.check import Skip
from veen_selftest.runner.context import Bench


@dataclass(slots=True)
class Draft:
    """A message that is to be, and what is to be wrong with it."""

    fields: dict[str, Any] = field(default_factory=dict)
    token: dict[str, Any] = field(default_factory=dict)
    without_token: bool = False
    earlier: int = 0
    """Messages that were accepted before."""
    padding: int = 0
    """Bytes that Content-Length announces beyond what is there."""
    after: bytes = b""
    """What follows the message where it should end."""

    workless: bool = False
    """Without the proof of work that the hub asks for."""

    def prepare(self, writer: Writer) -> None:
        """Everything before the message."""
        if self.earlier:
            writer.hub.accept_many(writer.many(self.earlier))
        if self.token:
            writer.authorized(**self.token)
        if self.without_token:
            writer.auth_ref = None

    def send(self, writer: Writer) -> Answer:
        """The message."""
        hub, fields = writer.hub, dict(self.fields)
        wire = writer.message(fields.pop("client_seq", writer.seq + 1), **fields) + self.after
        if self.padding:
            return hub.post("/v1/submit", b"", Content_Length=str(len(wire) + self.padding))
        return hub.post("/v1/submit", wrap_submit(wire), work=() if self.workless else [wire])

    def play(self, writer: Writer) -> Answer:
        self.prepare(writer)
        return self.send(writer)


Fault = Callable[[Draft], None]


def _too_large(draft: Draft) -> None:
    draft.padding = 2**40


def _not_canonical(draft: Draft) -> None:
    draft.after = b"\x00"


def _short_ciphertext(draft: Draft) -> None:
    draft.fields["ciphertext"] = b"too short"


def _other_version(draft: Draft) -> None:
    draft.fields["ver"] = 2


def _other_profile(draft: Draft) -> None:
    draft.fields["profile_id"] = bytes(32)


def _other_ct_hash(draft: Draft) -> None:
    draft.fields["ct_hash"] = bytes(32)


def _bad_signature(draft: Draft) -> None:
    draft.fields["sig"] = bytes(64)


def _no_token(draft: Draft) -> None:
    draft.without_token = True


def _somebody_elses_token(draft: Draft) -> None:
    draft.token["subject"] = ClientId(key_of(b"", "somebody else").public)


def _out_of_scope(draft: Draft) -> None:
    draft.token["streams"] = ["veen-selftest/elsewhere"]


def _no_rate_left(draft: Draft) -> None:
    draft.token["rate"] = Rate(per_sec=1, burst=0)


def _ahead_of_the_stream(draft: Draft) -> None:
    draft.fields["prev_ack"] = 99


def _again(draft: Draft) -> None:
    """``client_seq`` 1, which was accepted: so it is not the next one either."""
    draft.earlier = 2
    draft.fields["client_seq"] = 1


def _not_the_next(draft: Draft) -> None:
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
"""In the table's order. The other rows need another hub, time, or no message at all: see ``admission``."""

OF_A_TOKEN: Final = {rejection.AUTH_REF, rejection.CAP_SCOPE, rejection.CAP_RATE}


def can_both_be_wrong(a: Rejection, b: Rejection) -> bool:
    """A message without a token has none that is wrong."""
    return not (rejection.CAP_MISSING in (a, b) and OF_A_TOKEN & {a, b})


def play(bench: Bench, hub: Hub, rows: Iterable[Rejection]) -> Answer:
    """A message with these faults, on a stream of its own."""
    named = "+".join(row.detail for row in rows)
    return drafted(rows).play(bench.writer(hub, on=named))


def drafted(rows: Iterable[Rejection]) -> Draft:
    draft = Draft()
    for row in rows:
        FAULTS[row](draft)
    return draft


def outlast(bench: Bench, hub: Hub, when: int) -> None:
    """Until the hub's time is past ``when``, or patience ends."""
    deadline = time.monotonic() + bench.effort.patience
    while hub.status().hub_ts <= when and time.monotonic() < deadline:
        time.sleep(0.1)


def patient(bench: Bench) -> None:
    if bench.effort.patience < 4:
        raise Skip("a token's second must pass: --patience 4 waits for it")
