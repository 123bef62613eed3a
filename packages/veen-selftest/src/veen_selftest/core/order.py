"""The order of the admission table: of two faults the earlier row is reported (§8.1, §8.2)."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from veen_core import rejection
from veen_core.rejection import TABLE, Rejection
from veen_selftest.core import faults
from veen_selftest.hubs.http_hub import HttpHub, HttpResponse, require_refused_by
from veen_selftest.hubs.policy import ELSEWHERE, REFUSED_KEYS_SEED, REVOKED, UNPADDED
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, Skip
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import ROTATING, STRICT, STRICT_MAX_MESSAGES

POLICY_ROWS: Final = {
    rejection.NOT_PRIMARY: ELSEWHERE,
    rejection.REVOKED: REVOKED,
    rejection.PADDING: UNPADDED,
}
"""Rows of the policy of the selftest's own hubs, and the writers that it refuses by them."""
STRICT_ROWS: Final = (rejection.PREFILTER_REJECT, rejection.CLIENT_BOUNDS, *POLICY_ROWS)


def refused_writer(context: CheckContext, who: str, on: str = "log") -> Writer:
    """Return a writer that the policy of the selftest's own hubs refuses (H6)."""
    return Writer(
        context.hub(STRICT), REFUSED_KEYS_SEED, who, f"{context.fleet.run}/{context.seed}/{context.name}/{on}"
    )


def _combinable(hub: HttpHub, *without: Rejection) -> list[Rejection]:
    """Return the rows whose faults can be combined with any other fault."""
    if not hub.known.gating:
        without = (*without, rejection.CAP_MISSING)
        if hub.admin is None:
            without = (*without, *faults.TOKEN_ROWS)
    return [row for row in faults.FAULTS if row not in without]


def _two(context: CheckContext) -> None:
    """If a message has two faults, the earlier row of the table is reported, for every pair of rows."""
    hub = context.hub()
    pairs = [pair for pair in combinations(_combinable(hub), 2) if faults.can_both_be_wrong(*pair)]
    for done, (first, second) in enumerate(pairs, start=1):
        require_refused_by(first, faults.play(context, hub, [second, first]))
        context.progress(done, len(pairs))


def _expired(context: CheckContext) -> None:
    """If a message has an expired token and another fault, the earlier row is reported (H4)."""
    faults.require_wait(context)
    hub = context.hub()
    drafts = []
    for row in _combinable(hub, rejection.CAP_MISSING):
        draft, writer = faults.draft_with([row]), context.writer(hub, on=row.detail)
        draft.token["ttl"] = 1
        draft.prepare(writer)
        drafts.append((row, draft, writer))
    faults.wait_until_after(context, hub, hub.status().hub_ts + 1)
    for row, draft, writer in drafts:
        require_refused_by(_earlier(row, rejection.CAP_TTL), draft.send(writer))


def _outside(context: CheckContext) -> None:
    """If a message has a wrong epoch and another fault, the other is reported: EPOCH is the last row."""
    hub = context.hub(ROTATING)
    later = hub.status().epoch + 5
    for row in _combinable(hub, rejection.DUPLICATE):  # nothing was accepted on that label
        writer = context.writer(hub, on=row.detail, epoch=later)
        require_refused_by(_earlier(row, rejection.EPOCH), faults.draft_with([row]).play(writer))


def _strict(context: CheckContext) -> None:
    """If proof of work, policy or bounds refuse a message that has another fault, the earlier row counts."""
    if not context.fleet.starts_hubs:
        raise Skip(
            "policy and bounds are settings that are not visible from outside (RESOLUTIONS H6, KEX1+ 4.1)"
        )
    hub = context.hub(STRICT)
    others = _combinable(hub, rejection.DUPLICATE)  # the hub never accepts a message of a refused writer
    for done, strict in enumerate(STRICT_ROWS, start=1):
        for row in others:
            on = f"{strict.detail}+{row.detail}"
            require_refused_by(_earlier(strict, row), _refused_strictly(context, hub, strict, row, on))
        context.progress(done, len(STRICT_ROWS))


def _refused_strictly(
    context: CheckContext, hub: HttpHub, strict: Rejection, row: Rejection, on: str
) -> HttpResponse:
    draft = faults.draft_with([row])
    if strict in POLICY_ROWS:
        return draft.play(refused_writer(context, POLICY_ROWS[strict], on).authorized())
    draft.workless = strict is rejection.PREFILTER_REJECT
    draft.earlier = STRICT_MAX_MESSAGES if strict is rejection.CLIENT_BOUNDS else 0
    return draft.play(context.writer(hub, on=on))


def _earlier(*rows: Rejection) -> Rejection:
    return min(rows, key=TABLE.index)


CHECKS: Final = (
    Check("admission.order", "core §8.1", _two),
    Check("admission.order.CAP_TTL", "core §8.1, H4", _expired),
    Check("admission.order.EPOCH", "core §8.1", _outside),
    Check("admission.order.strict", "core §8.1, H6", _strict),
)
