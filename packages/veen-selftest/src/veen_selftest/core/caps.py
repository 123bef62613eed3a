"""Cap tokens: their rules, their receipts, their rate (§6, H5, H8, H18)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

from veen_core import cbor, hub_identity, rejection
from veen_core.api import ReceiptRequest, ReceiptResponse, StreamRequest
from veen_core.cap import CapToken, Rate, resign
from veen_core.entry import authorize_leaf
from veen_core.ids import StreamSeq
from veen_core.limits import MAX_CAP_CHAIN
from veen_core.receipt import Receipt
from veen_core.status import CapStatus
from veen_selftest.hubs.http_hub import require_refused_by
from veen_selftest.runner.check import Check, Skip, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext


def _receipt(context: CheckContext) -> None:
    """Authorizing a token returns a receipt of the control label; repeating it returns the same one (H5)."""
    hub = context.hub()
    token = context.writer_without_token(hub).token(ttl=1_000)
    first, again = hub.authorize(token), hub.authorize(token)
    require_equal(first.receipt.label, hub.known.control_label, "the label of an authorization")
    require_equal(
        first.receipt.leaf_hash,
        authorize_leaf(token.auth_ref, token.encode()),
        "leaf_hash of an authorization",
    )
    require_equal(first.expires_at, first.receipt.hub_ts + 1_000, "expires_at of an authorization")
    hub_identity.verify_receipt(hub.known.identity, first.receipt)
    require_equal(
        (again.receipt, again.expires_at),
        (first.receipt, first.expires_at),
        "the answer to a token authorized twice",
    )
    asked = ReceiptRequest(label=hub.known.control_label, stream_seq=first.receipt.stream_seq)
    require_equal(
        hub.ask("/v1/receipt", asked, ReceiptResponse).receipt,
        first.receipt,
        "the receipt of an authorization, fetched",
    )


def _replayable(context: CheckContext) -> None:
    """The control label holds the token and its receipt, so issued_at can be replayed (core §6.1)."""
    hub = context.hub()
    token = context.writer_without_token(hub).token()
    given = hub.authorize(token).receipt
    asked = StreamRequest(
        label=hub.known.control_label, from_seq=given.stream_seq, to_seq=given.stream_seq, with_receipts=True
    )
    answer = hub.post("/v1/stream", asked)
    require_equal(answer.status, 200, "status of a page of the control label")
    page: Any = cbor.decode(answer.body)
    item = require_one(page[5], "entries on a page of one (core §10.5)")
    require_equal(cbor.encode(item[2]), token.encode(), "the token on the control label (H5)")
    require_equal(cbor.encode(item[3]), given.encode(), "the token's receipt on the control label")
    require_equal(
        CapToken.decode(cbor.encode(item[2])).auth_ref,
        token.auth_ref,
        "the token's auth_ref on the control label",
    )


def _rules(context: CheckContext) -> None:
    """A token that violates a rule of core §6 on signatures, streams or rate is refused."""
    hub = context.hub()
    token = context.writer_without_token(hub).token(streams=["a", "b"])
    allow = token.allow
    twice = (allow.stream_ids[0], allow.stream_ids[0])
    fast = Rate(per_sec=hub.known.limits.max_cap_rate_per_sec + 1, burst=1)
    broken = {
        "no signature": replace(token, sig_chain=()),
        "nine signatures": replace(token, sig_chain=token.sig_chain * (MAX_CAP_CHAIN + 1)),
        "the same signature twice": replace(token, sig_chain=token.sig_chain * 2),
        "no stream": replace(token, allow=replace(allow, stream_ids=())),
        "streams out of order": replace(token, allow=replace(allow, stream_ids=allow.stream_ids[::-1])),
        "a stream twice": replace(token, allow=replace(allow, stream_ids=twice)),
        "another ttl than was signed": replace(token, allow=replace(allow, ttl=allow.ttl + 1)),
        "a rate above the limit": replace(token, allow=replace(allow, rate=fast)),
    }
    for name, wrong in broken.items():
        answer = hub.post("/tooling/authorize", wrong)
        require(answer.status != 200, f"a token with {name} was authorized (core §6)")
        require_refused_by(rejection.CAP_INVALID, answer)
    require_refused_by(rejection.CBOR_INVALID, hub.post("/tooling/authorize", token.encode() + b"\x00"))
    require_refused_by(rejection.CBOR_INVALID, hub.post("/tooling/authorize", b"\xa0"))


def _chain(context: CheckContext) -> None:
    """A token with the maximum number of signatures is verified signature by signature (core §6, §14)."""
    hub = context.hub()
    writer = context.writer_without_token(hub)
    token = writer.token()
    assert hub.admin is not None
    while len(token.sig_chain) < MAX_CAP_CHAIN:
        token = resign(hub.admin, token)
    middle = token.sig_chain[:3] + token.sig_chain[4:]
    require_refused_by(
        rejection.CAP_INVALID, hub.post("/tooling/authorize", replace(token, sig_chain=middle))
    )
    writer.auth_ref = hub.authorize(token).auth_ref
    hub.accept(writer.next())


def _rate(context: CheckContext) -> None:
    """The rate limit counts accepted messages only and is refilled every second (RL0, H8)."""
    hub = context.hub()
    rate = hub.rate(1, 3)
    writer = context.writer_without_token(hub).authorized(rate=rate)
    for _ in range(5):
        require_refused_by(rejection.CLIENT_SEQ, hub.submit(writer.message(9)))
    started = hub.status().hub_ts
    outcomes = hub.submit_many(writer.many(9))
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    passed = hub.status().hub_ts - started
    require(
        rate.burst <= len(accepted) <= rate.burst + passed,
        f"the hub accepted {len(accepted)} messages in {passed} s under a burst of {rate.burst} (H8)",
    )
    for outcome in outcomes[len(accepted) :]:
        require(
            not isinstance(outcome, Receipt), "the hub accepted a message after it had refused one by rate"
        )
    max_sec = max(3.0, context.options.max_wait)
    deadline = time.monotonic() + max_sec
    writer.seq = len(accepted) + 1
    while (answer := hub.submit(writer.message(writer.seq))).status != 200:
        require_refused_by(rejection.CAP_RATE, answer)
        require("retry-after" in answer.headers, "E.RATE without Retry-After (OP0.3)")
        require(time.monotonic() < deadline, f"the rate limit is not refilled after {max_sec:g} s (RL0)")
        time.sleep(0.1)


def _status(context: CheckContext) -> None:
    """The hub returns the status of an authorized token, and E.NOT_FOUND for an unknown auth_ref (H5)."""
    hub = context.hub()
    token = context.writer_without_token(hub).token(ttl=77)
    given = hub.authorize(token)
    status = hub.get(f"/tooling/cap/{token.auth_ref.hex()}").read(CapStatus)
    require_equal(
        (status.issued_at, status.known), (given.receipt.hub_ts, True), "issued_at and known of a cap status"
    )
    require_equal(status.expires_at, given.expires_at, "expires_at of a cap status")
    require_equal(
        (status.issuer_pk, status.subject_pk),
        (token.issuer_pk, token.subject_pk),
        "issuer and subject of a cap status",
    )
    absent = hub.get(f"/tooling/cap/{bytes(32).hex()}")
    require_equal(
        (absent.status, absent.error.code), (404, "E.NOT_FOUND"), "the cap status of an unknown auth_ref"
    )


def _control(context: CheckContext) -> None:
    """Clients cannot write to the control label, which holds only tokens (H5)."""
    hub = context.hub()
    if not hub.known.gating:
        raise Skip("the hub is open and accepts messages for any label (RESOLUTIONS H4, H20)")
    writer = context.writer(hub)
    before = hub.authorize(writer.token(ttl=12_345)).receipt.stream_seq
    require_refused_by(
        rejection.CAP_SCOPE, hub.submit(writer.message(1, label=bytes(hub.known.control_label)))
    )
    after = hub.authorize(writer.token(ttl=12_346)).receipt.stream_seq
    asked = StreamRequest(label=hub.known.control_label, from_seq=StreamSeq(before + 1), to_seq=after)
    page: Any = cbor.decode(hub.post("/v1/stream", asked).body)
    require(page[5], "the control label does not show the token that was authorized last")
    for item in page[5]:
        CapToken.decode(cbor.encode(item[2]))


CHECKS: Final = (
    Check("cap.receipt", "H5", _receipt),
    Check("cap.replayable", "core §6.1", _replayable),
    Check("cap.rules", "core §6", _rules),
    Check("cap.chain", "core §6, §14", _chain),
    Check("cap.rate", "RL0, H8", _rate),
    Check("cap.status", "H5", _status),
    Check("cap.control-label", "H5, H4", _control),
)
