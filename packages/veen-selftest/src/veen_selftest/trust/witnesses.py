"""Witnesses: the hub's checkpoints are cosigned, stay fresh, and no submit waits for a witness (P2)."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, StreamId
from veen_core.tlog.policy import WitnessPolicy, parse_policy
from veen_hub.client import Identity, connect
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.witnessed_hub import WitnessedHub
from veen_selftest.peers.hub_log_reader import (
    CHECKPOINT_PATH,
    PeerHubLogView,
    fetch_checkpoint,
    verify_checkpoint,
)
from veen_selftest.peers.note_verifier import HubCheckpoint, cosigned_at
from veen_selftest.peers.writer import LONG_TTL_SEC
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.trust.coverage import max_seconds, wait_for, write
from veen_selftest.trust.proofs import judge_offline, make_evidence
from veen_selftest.trust.views import CheckpointWatch

MAX_AGE_SEC: Final = 10
"""Oldest cosignature of a hub whose witness answers."""
MAX_SUBMIT_SEC: Final = 2.0
"""Longest time of a submit while the witness does not answer; the hub waits longer than this for it."""


def policy_of(witnessed: WitnessedHub) -> WitnessPolicy:
    """Return the policy that wants the cosignature of the hub's witness."""
    return parse_policy(f"witness w {witnessed.witness.key}\nquorum w\n".encode())


def wait_cosigned(
    context: CheckContext, witnessed: WitnessedHub, hub: HttpHub, size: int, after: int = 0
) -> HubCheckpoint:
    """Wait for a hub checkpoint of at least ``size`` entries, cosigned later than ``after``."""

    def found() -> HubCheckpoint | None:
        checkpoint = fetch_checkpoint(hub)
        at = _cosigned_at(witnessed, checkpoint)
        return checkpoint if checkpoint.size >= size and at is not None and at > after else None

    return wait_for(
        context, f"no cosignature of the witness on a hub checkpoint of {size} entries (P2)", found
    )


def _cosigned_at(witnessed: WitnessedHub, checkpoint: HubCheckpoint) -> int | None:
    return cosigned_at(checkpoint, witnessed.witness.name, witnessed.witness.public)


def _cosigned(context: CheckContext) -> None:
    """Each hub checkpoint is served with a fresh cosignature, which is renewed, and evidence has it (P2)."""
    witnessed = context.fleet.witnessed_hub()
    hub = witnessed.hub
    receipt, view = write(context, context.writer(hub))
    first = wait_cosigned(context, witnessed, hub, view.size)
    at = _cosigned_at(witnessed, first)
    assert at is not None
    age = time.time() - at
    require(abs(age) <= MAX_AGE_SEC, f"the cosignature is {age:.0f} s old (P2)")
    later = wait_cosigned(context, witnessed, hub, view.size, after=at)
    require(later.size >= first.size, "the hub log shrank while nothing was written (P1)")
    verdict = judge_offline(hub, make_evidence(hub, receipt), policy_of(witnessed))
    require(verdict.cosigned is not None and verdict.cosigned.witnesses, "the evidence names no witness (P2)")


def _one_view(context: CheckContext) -> None:
    """The hub log that a second client sees is the one that the witness cosigned (P2)."""
    witnessed = context.fleet.witnessed_hub()
    other = witnessed.hub.second_client()
    _receipt, view = write(context, context.writer(witnessed.hub))
    theirs = wait_cosigned(context, witnessed, other, view.size)
    PeerHubLogView(other, theirs).require_start(view.size, view.checkpoint.root)
    watch = CheckpointWatch()
    for shown in (witnessed.witness.newest(witnessed.origin) or b"", other.get(CHECKPOINT_PATH).body):
        watch.add(verify_checkpoint(other, shown))
    watch.check_all(watch.see(other))


def _off_path(context: CheckContext) -> None:
    """While the witness does not answer, submits are acknowledged; afterwards it cosigns again (P2)."""
    witnessed = context.fleet.witnessed_hub()
    hub = witnessed.hub
    writer = context.writer(hub)
    write(context, writer)
    with witnessed.witness.paused():
        for _ in range(5):
            started = time.monotonic()
            hub.accept(writer.next())
            seconds = time.monotonic() - started
            require(
                seconds < MAX_SUBMIT_SEC,
                f"a submit took {seconds:.1f} s while the witness did not answer (P2)",
            )
    _receipt, view = write(context, writer)
    wait_cosigned(context, witnessed, hub, view.size)


def _confirm(context: CheckContext) -> None:
    """The Python client with a witness policy confirms, reads and proves a message (P2)."""
    asyncio.run(_send_confirmed(context, context.fleet.witnessed_hub()))


async def _send_confirmed(context: CheckContext, witnessed: WitnessedHub) -> None:
    hub = witnessed.hub
    admin, hub_id = hub.admin, hub.known.identity.hub_id
    assert admin is not None

    async def source(client_id: ClientId, stream_id: StreamId) -> CapToken:
        return mint(admin, client_id, [stream_id], LONG_TTL_SEC)

    me, policy = Identity.generate(context.rng.randbytes), policy_of(witnessed)
    async with connect(hub.url, me, trust=hub_id, tokens=source, witnesses=policy) as client:
        stream = client.stream(context.stream_name("confirmed"))
        receipt = await stream.send("covered", confirm=True, confirm_timeout=max_seconds(context))
        read = [message async for message in stream.read()]
        require_equal([message.confirmed for message in read], [True], "messages that are confirmed (P2)")
        evidence = await client.evidence(receipt.label, receipt.stream_seq)
    verdict = judge_offline(hub, evidence, policy)
    require_equal(verdict.receipt, receipt, "the receipt that the client's evidence proves")


CHECKS: Final = (
    Check("witness.cosigned", "P2, C2SP", _cosigned),
    Check("witness.one-view", "P2", _one_view),
    Check("witness.off-path", "P2", _off_path),
    Check("witness.confirm", "P2", _confirm),
)
