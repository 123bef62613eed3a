"""Cap tokens at the hub: their rules, their receipts, their rate (§6, H5, H8, H18)."""

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
from veen_selftest.hubs.http_hub import refused_by
from veen_selftest.runner.check import Check, Skip, only, require, same
from veen_selftest.runner.context import Bench


def _receipt(bench: Bench) -> None:
    """Authorizing answers with a receipt of the control label; asking again, with the same one (H5)."""
    hub = bench.hub()
    token = bench.stranger(hub).token(ttl=1_000)
    first, again = hub.authorize(token), hub.authorize(token)
    same(first.receipt.label, hub.known.control_label, "the label of an authorization")
    same(first.receipt.leaf_hash, authorize_leaf(token.auth_ref, token.encode()), "its leaf_hash")
    same(first.expires_at, first.receipt.hub_ts + 1_000, "expires_at")
    hub_identity.verify_receipt(hub.known.identity, first.receipt)
    same((again.receipt, again.expires_at), (first.receipt, first.expires_at), "the second answer")
    asked = ReceiptRequest(label=hub.known.control_label, stream_seq=first.receipt.stream_seq)
    same(hub.ask("/v1/receipt", asked, ReceiptResponse).receipt, first.receipt, "the receipt, asked for")


def _replayable(bench: Bench) -> None:
    """The control label holds the token beside its receipt: issued_at needs no hidden state (§6.1)."""
    hub = bench.hub()
    token = bench.stranger(hub).token()
    given = hub.authorize(token).receipt
    asked = StreamRequest(
        label=hub.known.control_label, from_seq=given.stream_seq, to_seq=given.stream_seq, with_receipts=True
    )
    answer = hub.post("/v1/stream", asked)
    same(answer.status, 200, "status of a page of the control label")
    page: Any = cbor.decode(answer.body)
    item = only(page[5], "entries on a page of one (§10.5)")
    same(cbor.encode(item[2]), token.encode(), "the token on the control label (H5)")
    same(cbor.encode(item[3]), given.encode(), "its receipt on the control label")
    same(CapToken.decode(cbor.encode(item[2])).auth_ref, token.auth_ref, "its auth_ref")


def _rules(bench: Bench) -> None:
    """A token that breaks a rule of §6 is invalid: chain, streams, rate."""
    hub = bench.hub()
    token = bench.stranger(hub).token(streams=["a", "b"])
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
        require(answer.status != 200, f"a token with {name} was authorized (§6)")
        refused_by(rejection.CAP_INVALID, answer)
    refused_by(rejection.CBOR_INVALID, hub.post("/tooling/authorize", token.encode() + b"\x00"))
    refused_by(rejection.CBOR_INVALID, hub.post("/tooling/authorize", b"\xa0"))


def _chain(bench: Bench) -> None:
    """A chain of as many signatures as are allowed is verified link by link (§6, §14)."""
    hub = bench.hub()
    writer = bench.stranger(hub)
    token = writer.token()
    assert hub.admin is not None
    while len(token.sig_chain) < MAX_CAP_CHAIN:
        token = resign(hub.admin, token)
    middle = token.sig_chain[:3] + token.sig_chain[4:]
    refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", replace(token, sig_chain=middle)))
    writer.auth_ref = hub.authorize(token).auth_ref
    hub.accept(writer.next())


def _rate(bench: Bench) -> None:
    """A bucket per token and label, refilled by the second, used up by accepted messages only (RL0, H8)."""
    hub = bench.hub()
    rate = hub.rate(1, 3)
    writer = bench.stranger(hub).authorized(rate=rate)
    for _ in range(5):
        refused_by(rejection.CLIENT_SEQ, hub.submit(writer.message(9)))
    started = hub.status().hub_ts
    outcomes = hub.submit_many(writer.many(9))
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    passed = hub.status().hub_ts - started
    require(
        rate.burst <= len(accepted) <= rate.burst + passed,
        f"{len(accepted)} accepted under a burst of {rate.burst} in {passed} s (H8)",
    )
    for outcome in outcomes[len(accepted) :]:
        require(not isinstance(outcome, Receipt), "a message was accepted after one was over the rate")
    deadline = time.monotonic() + max(3.0, bench.effort.patience)
    writer.seq = len(accepted) + 1
    while (answer := hub.submit(writer.message(writer.seq))).status != 200:
        refused_by(rejection.CAP_RATE, answer)
        require("retry-after" in answer.headers, "E.RATE without Retry-After (OP0.3)")
        require(time.monotonic() < deadline, "the bucket is never refilled (RL0)")
        time.sleep(0.1)


def _status(bench: Bench) -> None:
    """What the hub knows of an auth_ref, and that it has never seen another (H5)."""
    hub = bench.hub()
    token = bench.stranger(hub).token(ttl=77)
    given = hub.authorize(token)
    status = hub.get(f"/tooling/cap/{token.auth_ref.hex()}").read(CapStatus)
    same((status.issued_at, status.known), (given.receipt.hub_ts, True), "issued_at and known")
    same(status.expires_at, given.expires_at, "expires_at")
    same((status.issuer_pk, status.subject_pk), (token.issuer_pk, token.subject_pk), "issuer and subject")
    absent = hub.get(f"/tooling/cap/{bytes(32).hex()}")
    same((absent.status, absent.error.code), (404, "E.NOT_FOUND"), "an auth_ref nobody has seen")


def _control(bench: Bench) -> None:
    """Nobody but the hub writes to the control label: it holds tokens (H5)."""
    hub = bench.hub()
    if not hub.known.gating:
        raise Skip("the hub is open: it takes a message for any label (H4, H20)")
    writer = bench.writer(hub)
    before = hub.authorize(writer.token(ttl=12_345)).receipt.stream_seq
    refused_by(rejection.CAP_SCOPE, hub.submit(writer.message(1, label=bytes(hub.known.control_label))))
    after = hub.authorize(writer.token(ttl=12_346)).receipt.stream_seq
    asked = StreamRequest(label=hub.known.control_label, from_seq=StreamSeq(before + 1), to_seq=after)
    page: Any = cbor.decode(hub.post("/v1/stream", asked).body)
    require(page[5], "the control label does not show the token that was authorized last")
    for item in page[5]:  # of whomever
        CapToken.decode(cbor.encode(item[2]))


CHECKS: Final = (
    Check("cap.receipt", "H5", _receipt),
    Check("cap.replayable", "§6.1", _replayable),
    Check("cap.rules", "§6", _rules),
    Check("cap.chain", "§6, §14", _chain),
    Check("cap.rate", "RL0, H8", _rate),
    Check("cap.status", "H5", _status),
    Check("cap.control-label", "H5, H4", _control),
)
