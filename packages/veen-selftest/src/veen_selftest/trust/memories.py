"""A hub that cannot forget: it signs nothing while it is behind a memory, but serves reads (P3)."""

from __future__ import annotations

from typing import Final

from veen_core.status import LabelRequest
from veen_selftest.hubs.http_hub import HttpHub, HttpResponse
from veen_selftest.hubs.witnessed_hub import WitnessedHub
from veen_selftest.peers.hub_log_reader import fetch_checkpoint
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HubSetup
from veen_selftest.trust.coverage import MAX_ANSWER_SEC, REMEDY, wait_for, write
from veen_selftest.trust.witnesses import wait_cosigned


def _with_memories(witnessed: WitnessedHub, *, witness: bool = False, heads_file: bool = False) -> HubSetup:
    settings = witnessed.hub_log_settings(witness=witness, heads_file=heads_file)
    return HubSetup(name="restored", settings={"hub_log": settings})


def require_red(context: CheckContext, writer: Writer, copy: HttpHub, written: int) -> str:
    """Require that a hub signs nothing, says why, and serves reads; returns the reason."""
    reason = wait_for(
        context, "the hub signs, although it must not (P3)", lambda: copy.status().not_signing or None
    )
    before = fetch_checkpoint(copy)
    attempts: dict[str, HttpResponse] = {
        "a message": copy.submit(writer.message(written + 1)),
        "a token": copy.post("/tooling/authorize", writer.token()),
        "a checkpoint": copy.admin_post("/tooling/checkpoint", LabelRequest(label=writer.label).encode()),
    }
    for what, answer in attempts.items():
        require_equal((answer.status, answer.error.code), (503, "E.UNAVAILABLE"), f"answer to {what} (P3)")
    require_equal(copy.get("/readyz").status, 503, "status of /readyz (P3)")
    log = VerifiedLog(copy, writer.label).read()
    require_equal(log.tree.size, written, "entries that a hub that signs nothing serves (P3)")
    after = fetch_checkpoint(copy)
    require_equal(
        (after.size, after.root), (before.size, before.root), "the hub checkpoint that is served (P3)"
    )
    return reason


def _require_behind(reason: str, remembered: int, size: int) -> None:
    """Require that a hub says by how much it is behind, and which command helps."""
    for number in (remembered, size, remembered - size):
        require(str(number) in reason, f"the hub does not say by how much it is behind: {reason!r} (P3)")
    require(REMEDY in reason, f"the hub does not say which command helps: {reason!r} (P3)")


def _witness(context: CheckContext) -> None:
    """A hub from an older copy signs nothing: not while its witness is silent, and not once it answers."""
    witnessed = context.fleet.witnessed_hub()
    writer = context.writer(witnessed.hub)
    _receipt, old = write(context, writer, 2)
    own = context.fleet.restore(witnessed.own, _with_memories(witnessed, witness=True))
    _receipt, new = write(context, writer)
    wait_cosigned(context, witnessed, witnessed.hub, new.size)
    with witnessed.witness.paused(), own.running() as copy:
        silence = require_red(context, writer, copy, 2)
        require(
            REMEDY not in silence,
            f"the hub says that it is behind although its witness has not answered: {silence!r} (P3)",
        )
        witnessed.witness.resume()
        wait_for(
            context, "the hub does not say that it is behind (P3)", lambda: _remedy(copy), MAX_ANSWER_SEC
        )
        _require_behind(require_red(context, writer, copy, 2), new.size, old.size)


def _remedy(copy: HttpHub) -> bool | None:
    return True if REMEDY in (copy.status().not_signing or "") else None


def _heads_file(context: CheckContext) -> None:
    """If two processes have one identity, the second one signs nothing, and reports that it is behind."""
    witnessed = context.fleet.witnessed_hub()
    writer = context.writer(witnessed.hub)
    _receipt, old = write(context, writer, 2)
    second = context.fleet.restore(witnessed.own, _with_memories(witnessed, heads_file=True))
    with second.running() as copy:
        claimed = require_red(context, writer, copy, 2)
        require(REMEDY not in claimed, f"the hub is not behind yet: {claimed!r} (P3)")
        _receipt, new = write(context, writer)
        wait_for(
            context, "the hub does not say that it is behind (P3)", lambda: _remedy(copy), MAX_ANSWER_SEC
        )
        _require_behind(require_red(context, writer, copy, 2), new.size, old.size)


CHECKS: Final = (
    Check("memory.witness", "P3", _witness),
    Check("memory.heads-file", "P3", _heads_file),
)
