"""The hub checkpoint: its form, its signatures, and its continuity over a restart and a key rotation."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from veen_core.hub_identity import HubKey
from veen_core.receipt import Receipt
from veen_selftest.core.rotation import WINDOW_SECONDS, start_when_valid
from veen_selftest.hubs.http_hub import HttpResponse
from veen_selftest.peers.hub_log_reader import CHECKPOINT_PATH, PeerHubLogView, verify_checkpoint
from veen_selftest.peers.note_verifier import HubCheckpoint, is_signed
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG
from veen_selftest.trust.coverage import head_of, wait_for_heads, wait_until_signing, write

MAX_CHECKPOINT_AGE_SEC: Final = 5
"""Longest time that a cache may keep a hub checkpoint: "a few seconds" (C2SP tlog-tiles)."""


def max_age(answer: HttpResponse) -> int | None:
    """Return how long a cache may keep an answer, in seconds; None if the answer does not say."""
    said = answer.headers.get("cache-control", "")
    if re.search(r"\bno-(?:store|cache)\b", said):
        return 0
    found = re.search(r"\bmax-age=(\d+)", said)
    return int(found[1]) if found is not None else None


def _note(context: CheckContext) -> None:
    """The hub checkpoint is a C2SP note of three lines, signed by every active key of the hub."""
    hub = context.hub(HUB_LOG)
    write(context, context.writer(hub))
    answer = hub.get(CHECKPOINT_PATH)
    kind = answer.headers.get("content-type", "")
    require_equal((answer.status, kind), (200, "text/plain; charset=utf-8"), f"answer to {CHECKPOINT_PATH}")
    age = max_age(answer)
    require(
        age is not None and age <= MAX_CHECKPOINT_AGE_SEC,
        f"a cache may keep the hub checkpoint longer than {MAX_CHECKPOINT_AGE_SEC} s (C2SP tlog-tiles)",
    )
    status = hub.status()
    _require_signed_by(verify_checkpoint(hub, answer.body), status.identity.active_at(status.hub_ts))


def _require_signed_by(checkpoint: HubCheckpoint, keys: Iterable[HubKey]) -> None:
    for key in keys:
        require(
            is_signed(checkpoint, checkpoint.origin, bytes(key.hub_pk)),
            f"the active key {key.hub_pk.hex()[:16]} did not sign the hub checkpoint (P1, KEX0.1)",
        )


def _restart(context: CheckContext) -> None:
    """After a rotation both keys sign the hub log, which continues; a stopped hub has covered every label."""
    witnessed = context.fleet.witnessed_hub()
    _receipt, before = write(context, context.writer(witnessed.hub))
    own = context.fleet.restore(witnessed.own, HUB_LOG)
    own.rotate(WINDOW_SECONDS)
    heads_file = own.log.with_name("heads")
    heads_file.touch()
    own.change({"hub_log": {"interval_sec": 3_600, "memories": {"heads_file": str(heads_file)}}})
    hub = start_when_valid(own)
    wait_until_signing(context, hub)
    writers = [context.writer(hub, on=f"label {n}") for n in range(3)]
    receipts = [hub.accept_many(writer.many(2))[-1] for writer in writers]
    require_equal(own.stop(), 0, "exit code of a hub that was asked to stop")
    size, root = _recorded(heads_file)
    require(size > before.size, "a stopped hub made no last hub checkpoint (P1)")
    with own.running() as hub:
        after = wait_for_heads(context, hub, receipts)
        after.require_start(before.size, before.checkpoint.root)
        _require_covered(after, size, root, receipts)
        require_equal(len(hub.known.identity.hub_keys), 2, "keys after a rotation")
        _require_signed_by(after.checkpoint, hub.known.identity.hub_keys)


def _recorded(heads_file: Path) -> tuple[int, bytes]:
    """Return size and root of the last hub checkpoint before a stop, from the hub's heads file (P3)."""
    text = heads_file.read_text(encoding="utf-8")
    require(text.count("\n") >= 3, f"the heads file has no size and root: {text!r} (P3)")
    _origin, size, root, *_others = text.splitlines()
    return int(size), base64.b64decode(root)


def _require_covered(view: PeerHubLogView, size: int, root: bytes, receipts: Iterable[Receipt]) -> None:
    """Require that the first ``size`` entries have this root, and a head for each receipt."""
    require_equal(view.root_at(size), root, "root of the last hub checkpoint before a stop (P1)")
    first = list(view.heads())[:size]
    for receipt in receipts:
        require(head_of(receipt) in first, "a stopped hub's log does not cover every label (P1)")


CHECKS: Final = (
    Check("hub-log.note", "P1, C2SP", _note),
    Check("hub-log.restart", "P1, KEX0.1", _restart),
)
