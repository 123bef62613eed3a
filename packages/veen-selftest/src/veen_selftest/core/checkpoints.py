"""Checkpoints, and the admin requests that make them (§4.4, §10.4.5, H9, H19)."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

from veen_core import cbor, hub_identity
from veen_core.api import CheckpointRequest, CheckpointResponse, ConsistencyRequest, ConsistencyResponse
from veen_core.checkpoint import Checkpoint, check_transition
from veen_core.consistency import verify_consistency
from veen_core.hashing import H
from veen_core.ids import HubId, Label, StreamSeq
from veen_core.status import CheckpointsResponse, LabelRequest
from veen_selftest.hubs.http_hub import CBOR, CBOR_SEQ, HttpHub
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.check import Check, Skip, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext

PATH: Final = "/tooling/checkpoint"
MAX_LISTED: Final = 1_000
"""Checkpoints per response; at a hub with more, a new one may be on a later page."""


def make(hub: HttpHub, label: Label) -> tuple[Checkpoint, ...]:
    """Make a checkpoint by an admin request."""
    return hub.admin_post(PATH, LabelRequest(label=label).encode()).read(CheckpointsResponse).checkpoints


def fetch(hub: HttpHub, label: Label, upto: int = 0) -> Checkpoint:
    asked = CheckpointRequest(label=label, upto_seq=StreamSeq(upto))
    return hub.ask("/v1/checkpoint", asked, CheckpointResponse).checkpoint


def _now(context: CheckContext) -> None:
    """A new checkpoint covers the whole log, with its root and a valid signature (core §4.4.1)."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(5))
    made = require_one(make(hub, writer.label), "checkpoints of one label")
    log = VerifiedLog(hub, writer.label).read()
    check_transition(made, log.tree)
    hub_identity.verify_checkpoint(hub.known.identity, made, hub.known.profile.epoch_sec)
    require_equal(make(hub, writer.label), (made,), "the checkpoint of a label that did not grow")


def _fetch(context: CheckContext) -> None:
    """A checkpoint is fetched unchanged by its upto_seq, and the latest one by 0 (core §10.4.5)."""
    hub = context.hub()
    writer = context.writer(hub)
    made: list[Checkpoint] = []
    for count in (2, 3):
        hub.accept_many(writer.many(count))
        made += make(hub, writer.label)
    require_equal([one.upto_seq for one in made], [2, 5], "upto_seq of two checkpoints")
    for one in made:
        require_equal(
            fetch(hub, writer.label, one.upto_seq).encode(), one.encode(), "a checkpoint that is fetched"
        )
    require_equal(fetch(hub, writer.label), made[-1], "the latest checkpoint")
    absent = hub.post("/v1/checkpoint", CheckpointRequest(label=writer.label, upto_seq=StreamSeq(3)))
    require_equal(
        (absent.status, absent.error.code), (404, "E.NOT_FOUND"), "a checkpoint that was never made"
    )


def _chain(context: CheckContext) -> None:
    """A consistency proof shows that the log only grew between two checkpoints (core §4.4.1, B11)."""
    hub = context.hub()
    writer = context.writer(hub)
    made: list[Checkpoint] = []
    for count in (1, 4, 6):
        hub.accept_many(writer.many(count))
        made += make(hub, writer.label)
    for old, new in pairwise(made):
        require(old.upto_seq < new.upto_seq, "upto_seq does not increase (core §4.4.1)")
        asked = ConsistencyRequest(label=writer.label, from_seq=old.upto_seq, to_seq=new.upto_seq)
        proof = hub.ask("/v1/consistency", asked, ConsistencyResponse).mmr_consistency
        verify_consistency(proof, old.mmr_root, new.mmr_root)
        require_equal(new.label_prev, new.label_curr, "label_prev of a later checkpoint (H9)")


def _range(context: CheckContext) -> None:
    """Checkpoints are listed by a range of epochs, including one just made (spec-1 §16)."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept(writer.next())
    made = require_one(make(hub, writer.label), "checkpoints of one label")
    max_sec = max(5.0, context.options.max_wait)
    deadline = time.monotonic() + max_sec
    while made not in (found := _listed(hub, made.epoch, made.epoch)) and len(found) < MAX_LISTED:
        require(time.monotonic() < deadline, f"a new checkpoint is not in the range after {max_sec:g} s")
        time.sleep(0.02)
    require(all(one.epoch == made.epoch for one in found), "a checkpoint of another epoch in the range")
    require_equal(_listed(hub, made.epoch + 1_000, made.epoch + 1_001), [], "checkpoints of epochs to come")


def _listed(hub: HttpHub, first: int, last: int) -> list[Checkpoint]:
    answer = hub.get(f"/v1/checkpoint?epoch_min={first}&epoch_max={last}")
    require_equal((answer.status, answer.headers["content-type"]), (200, CBOR_SEQ), "a range of checkpoints")
    return [Checkpoint.decode(item) for item in cbor.split_sequence(answer.body)]


def _orders(context: CheckContext) -> None:
    """An admin request is carried out only if it is fresh and signed by the admin, and only once (H19)."""
    hub = context.hub()
    if hub.admin is None:
        raise Skip("needs a request signed by the hub's admin: give --admin-key")
    writer = context.writer(hub)
    hub.accept(writer.next())
    body, now = LabelRequest(label=writer.label).encode(), hub.status().hub_ts
    stranger = key_of(context.secret, "stranger")
    wrong = {
        "unsigned": ({"Content-Type": CBOR}, "E.UNAUTHORIZED"),
        "by a stranger": (hub.signed(PATH, body, now, stranger), "E.FORBIDDEN"),
        "of another body": (hub.signed(PATH, body + b"\x00", now, hub.admin), "E.FORBIDDEN"),
        "for another hub": (
            hub.signed(PATH, body, now, hub.admin, HubId(H(b"another hub"))),
            "E.FORBIDDEN",
        ),
        "of another path": (hub.signed("/tooling/anchor", body, now, hub.admin), "E.FORBIDDEN"),
        "too old": (hub.signed(PATH, body, now - 120, hub.admin), "E.UNAUTHORIZED"),
        "from the future": (hub.signed(PATH, body, now + 120, hub.admin), "E.UNAUTHORIZED"),
    }
    for name, (headers, code) in wrong.items():
        answer = hub.call("POST", PATH, body, headers)
        require(answer.status != 200, f"an admin request {name} was carried out (RESOLUTIONS H19)")
        require_equal(answer.error.code, code, f"code of an admin request {name}")
    good = hub.signed(PATH, body, now, hub.admin)
    require_equal(hub.call("POST", PATH, body, good).status, 200, "status of a valid admin request")
    require_equal(
        hub.call("POST", PATH, body, good).error.code, "E.CONFLICT", "code of an admin request sent twice"
    )


CHECKS: Final = (
    Check("checkpoint.now", "core §4.4.1", _now),
    Check("checkpoint.fetch", "core §10.4.5", _fetch),
    Check("checkpoint.chain", "core §4.4.1, B11", _chain),
    Check("checkpoint.range", "spec-1 §16", _range),
    Check("checkpoint.orders", "H19", _orders),
)
