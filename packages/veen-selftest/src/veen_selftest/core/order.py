"""Of two faults the earlier row of the admission table is reported (§8.1, §8.2)."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from veen_core import rejection
from veen_core.rejection import TABLE, Rejection
from veen_selftest.core import faults
from veen_selftest.hubs.http_hub import Answer, Hub, refused_by
from veen_selftest.hubs.policy import ELSEWHERE, OUTCASTS, REVOKED, UNPADDED
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, Skip
from veen_selftest.runner.context import Bench
from veen_selftest.runner.hub_setup import MOST_MESSAGES, ROTATING, STRICT

OUT: Final = {
    rejection.NOT_PRIMARY: ELSEWHERE,
    rejection.REVOKED: REVOKED,
    rejection.PADDING: UNPADDED,
}
"""Whom the policy of the selftest's own hubs refuses by which row."""
STRICT_ROWS: Final = (rejection.PREFILTER_REJECT, rejection.CLIENT_BOUNDS, *OUT)


def outcast(bench: Bench, who: str, on: str = "log") -> Writer:
    """Somebody whom the policy of the selftest's own hubs does not let in (H6)."""
    return Writer(bench.hub(STRICT), OUTCASTS, who, f"{bench.fleet.run}/{bench.seed}/{bench.name}/{on}")


def _others(hub: Hub, *without: Rejection) -> list[Rejection]:
    """Rows that one message can be refused by, whatever else is wrong with it."""
    if not hub.known.gating:
        without = (*without, rejection.CAP_MISSING)
        if hub.admin is None:
            without = (*without, *faults.OF_A_TOKEN)
    return [row for row in faults.FAULTS if row not in without]


def _two(bench: Bench) -> None:
    """Of two faults in one message the earlier row of the table is reported, whichever two they are."""
    hub = bench.hub()
    pairs = [pair for pair in combinations(_others(hub), 2) if faults.can_both_be_wrong(*pair)]
    for done, (first, second) in enumerate(pairs, start=1):
        refused_by(first, faults.play(bench, hub, [second, first]))
        bench.progress(done, len(pairs))


def _expired(bench: Bench) -> None:
    """Of two faults, one of them a token that has run out, the earlier row is reported (H4)."""
    faults.patient(bench)
    hub = bench.hub()
    drafts = []
    for row in _others(hub, rejection.CAP_MISSING):
        draft, writer = faults.drafted([row]), bench.writer(hub, on=row.detail)
        draft.token["ttl"] = 1
        draft.prepare(writer)
        drafts.append((row, draft, writer))
    faults.outlast(bench, hub, hub.status().hub_ts + 1)
    for row, draft, writer in drafts:
        refused_by(_earlier(row, rejection.CAP_TTL), draft.send(writer))


def _outside(bench: Bench) -> None:
    """Of two faults, one of them a label of another epoch, the other is reported: the epoch is last."""
    hub = bench.hub(ROTATING)
    later = hub.status().epoch + 5
    for row in _others(hub, rejection.DUPLICATE):  # nothing was ever accepted there
        writer = bench.writer(hub, on=row.detail, epoch=later)
        refused_by(_earlier(row, rejection.EPOCH), faults.drafted([row]).play(writer))


def _strict(bench: Bench) -> None:
    """Of two faults, one of them missing work, a policy's word or a client_id used up, the earlier row is."""
    if not bench.fleet.starts_hubs:
        raise Skip("a policy and bounds are a hub's own, and cannot be seen from outside (H6, KEX1+ 4.1)")
    hub = bench.hub(STRICT)
    others = _others(hub, rejection.DUPLICATE)  # of an outcast nothing is ever accepted
    for done, strict in enumerate(STRICT_ROWS, start=1):
        for row in others:
            on = f"{strict.detail}+{row.detail}"
            refused_by(_earlier(strict, row), _refused_strictly(bench, hub, strict, row, on))
        bench.progress(done, len(STRICT_ROWS))


def _refused_strictly(bench: Bench, hub: Hub, strict: Rejection, row: Rejection, on: str) -> Answer:
    draft = faults.drafted([row])
    if strict in OUT:
        return draft.play(outcast(bench, OUT[strict], on).authorized())
    draft.workless = strict is rejection.PREFILTER_REJECT
    draft.earlier = MOST_MESSAGES if strict is rejection.CLIENT_BOUNDS else 0
    return draft.play(bench.writer(hub, on=on))


def _earlier(*rows: Rejection) -> Rejection:
    return min(rows, key=TABLE.index)


CHECKS: Final = (
    Check("admission.order", "§8.1", _two),
    Check("admission.order.CAP_TTL", "§8.1, H4", _expired),
    Check("admission.order.EPOCH", "§8.1", _outside),
    Check("admission.order.strict", "§8.1, H6", _strict),
)
