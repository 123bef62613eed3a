"""Checks of the hub log's entries: every head of a label extends the label's head before it (P1).

The entries are read in order. For each label that moved, the hub is asked for the proof that the new head
extends the one before. The entries of one bundle are checked together and then committed, so that a monitor
that is stopped continues where it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import DecodeError
from veen_core.hub_fork import LabelStatement
from veen_core.hub_log import LabelHead
from veen_core.ids import Label
from veen_core.mmr import Node
from veen_core.tlog.tiles import TILE_WIDTH
from veen_core.tlog.tree import leaf_hash
from veen_core.tlog.tree_head import SignedHead
from veen_hub.monitor.findings import Finding, Key
from veen_hub.monitor.hub_source import DOES_NOT_FIT, LogTiles, Withheld
from veen_hub.monitor.label_proofs import LabelProofs, SignedRoot, claim_of_head
from veen_hub.monitor.memory import HubMemory, write_to_end
from veen_hub.monitor.rules import HeadPair, HeadPlace, first_that_convicts

MAX_PROOFS: Final = 32
"""Consistency proofs that are asked for at once."""
MAX_REPEATED: Final = 64
"""Unproven steps that are asked for again in one round."""


@dataclass(slots=True)
class CheckedEntries:
    """The result of checking entries: additions to the memory, and findings."""

    heads: dict[Label, HeadPlace] = field(default_factory=dict)
    steps: list[HeadPair] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    unproven: list[HeadPair] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class LabelChecks:
    """The checks of one hub."""

    def __init__(
        self, memory: HubMemory, tiles: LogTiles, proofs: LabelProofs, report: Callable[[Finding], None]
    ) -> None:
        """``report`` makes a finding durable."""
        self._memory = memory
        self._report = report
        self._tiles = tiles
        self._proofs = proofs
        self._slots = asyncio.Semaphore(MAX_PROOFS)

    async def follow(self, signed: SignedHead, until: float | None = None) -> None:
        """Check the entries that are new under a hub checkpoint, and report what is wrong with them.

        Stop at ``until`` on the monotonic clock: the rest is checked in the next round. Raise ``Withheld`` if
        the hub does not serve the entries, and ``Unreachable`` if it does not answer.
        """
        for is_last in (False, True):
            try:
                await self._follow(signed, until)
            except DOES_NOT_FIT as exc:
                if is_last:
                    raise Withheld(
                        f"the hub does not serve all of its log of {signed.head.size} entries: {exc.message}"
                    ) from exc
            else:
                return

    async def _follow(self, signed: SignedHead, until: float | None) -> None:
        reader = self._tiles.reader(signed.head)
        async with aclosing(reader.entries(self._memory.checked)) as entries:
            pending: list[bytes] = []
            async for index, entry in entries:
                pending.append(entry)
                if (index + 1) % TILE_WIDTH and index + 1 < signed.head.size:
                    continue
                await self._check(signed, pending)
                pending = []
                if until is not None and time.monotonic() > until:
                    return

    async def _check(self, signed: SignedHead, entries: Sequence[bytes]) -> None:
        """Check the next entries, report what is wrong with them, then commit them.

        A finding is durable before the commit: after a crash in between, the entries are checked again.
        """
        tree, changes = self._memory.tree.copy(), CheckedEntries()
        for entry in entries:
            index = tree.size
            changes.nodes += tree.append(leaf_hash(entry))
            await self._add(changes, index, entry, signed)
        found = await asyncio.gather(*(self._step(step, signed) for step in changes.steps))
        for step, finding in zip(changes.steps, found, strict=True):
            if finding is not None:
                changes.findings.append(finding)
                changes.unproven += [step] if finding.evidence is None else []
        for finding in changes.findings:
            self._report(finding)
        await write_to_end(self._memory.commit, tree, changes.nodes, changes.heads, changes.unproven)

    async def _add(self, changes: CheckedEntries, index: int, entry: bytes, signed: SignedHead) -> None:
        """Add one entry: the first head of a label, or the next."""
        try:
            place = HeadPlace(index, LabelHead.decode(entry))
        except DecodeError as exc:
            changes.findings.append(_invalid(index, f"is not a label's head: {exc}"))
            return
        head = place.head
        before = changes.heads.get(head.label) or self._memory.head(head.label)
        if before is not None and head.upto_seq <= before.head.upto_seq:
            changes.findings.append(await self._rollback_found(before, place, signed))
            return  # the larger head is the one to extend
        if head.upto_seq < 1:
            changes.findings.append(_invalid(index, "covers no entry of its label"))
            return
        if before is not None and head.hub_ts < before.head.hub_ts:
            what = f"has hub_ts {head.hub_ts}, and the label's head before it {before.head.hub_ts} (H3)"
            changes.findings.append(_invalid(index, what))
        changes.heads[head.label] = place
        if before is not None:
            changes.steps.append(HeadPair(before, place))

    async def _rollback_found(self, before: HeadPlace, place: HeadPlace, signed: SignedHead) -> Finding:
        """Make the finding of a head that decreases; two entries under one hub checkpoint prove it."""
        pair = await self._tiles.statement(signed, place), await self._tiles.statement(signed, before)
        known, subject = self._memory.known, _subject(place.head)
        return Finding(
            key=Key.LABEL_ROLLED_BACK,
            subject=subject,
            message=f"the hub log has {subject} at {before.head.upto_seq} entries (entry {before.index}), "
            f"and later at {place.head.upto_seq} (entry {place.index})",
            evidence=first_that_convicts(known.identity, known.origin, [pair], ()),
            permanent=True,
        )

    # --- steps

    async def _step(self, step: HeadPair, signed: SignedHead) -> Finding | None:
        """Return a finding unless the hub proves that a head extends the label's head before it."""
        known = self._memory.known
        async with self._slots:
            found = await self._proofs.compare(
                known.identity,
                known.origin,
                self._claim(step.earlier, signed),
                self._claim(step.later, signed),
            )
        if found is None:
            return None
        earlier, later = step.earlier.head, step.later.head
        return Finding(
            key=Key.LABEL_FORK,
            subject=_subject(later),
            message=f"{_subject(later)}: the head at {later.upto_seq} entries in the hub log does not "
            f"extend the head at {earlier.upto_seq}: {found.why}",
            evidence=found.evidence,
        )

    def _claim(self, place: HeadPlace, signed: SignedHead) -> SignedRoot:
        async def prove() -> LabelStatement:
            return await self._tiles.statement(signed, place)

        return claim_of_head(place.head, prove)

    async def repeat_unproven(self, signed: SignedHead) -> tuple[list[Finding], set[str]]:
        """Ask again for proofs that the hub did not give; return what it lacks still, and the decided labels.

        A label is decided if the hub still lacks a proof, or if none of its steps is left to be proved.
        """
        found: list[Finding] = []
        steps = self._memory.unproven(MAX_REPEATED)
        for step in steps:
            finding = await self._step(step, signed)
            if finding is not None and finding.evidence is not None:
                self._report(finding)
            elif finding is not None:
                found.append(finding)
                continue
            await write_to_end(self._memory.settle_step, step)
        lacking = {finding.subject for finding in found}
        heads = [step.later.head for step in steps]
        decided = {_subject(head) for head in heads if not self._memory.is_unproven(head.label)}
        return found, lacking | decided


def _subject(head: LabelHead) -> str:
    return f"label {head.label.hex()}"


def _invalid(index: int, what: str) -> Finding:
    return Finding(
        key=Key.INVALID,
        subject=f"entry {index}",
        message=f"entry {index} of the hub log {what}",
        permanent=True,
    )
