"""Checks of hub checkpoints: each that is seen anywhere must be the start of the larger ones (P1-P3).

A hub checkpoint is compared with the largest one that the hub has shown, the one *held*:

- The hub shows a smaller one, which is the start of the one held: ``stale``, or ``rollback`` if the hub no
  longer serves the longer log that it signed.
- A client or witness has seen a larger one: ``rollback``, unless the hub publishes it in the grace period.
- Neither is the start of the other: ``fork``, or ``cosignatures_disagree`` if a witness has one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from veen_core import hub_fork, hub_log
from veen_core.errors import SignatureError
from veen_core.hub_fork import CutTree, HubLogFork
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_hub.monitor.findings import Finding, Key
from veen_hub.monitor.hub_source import LogTiles, Withheld
from veen_hub.monitor.memory import HubMemory
from veen_hub.monitor.rules import find_fork
from veen_hub.monitor.sightings import SeenBy, SeenCheckpoint

MAX_PREFIXES: Final = 65_536
"""Checkpoints that are known to agree with the one held, so that they are not compared again."""


class CheckpointChecks:
    """The checks of one hub."""

    def __init__(
        self,
        memory: HubMemory,
        tiles: LogTiles,
        grace_sec: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``grace_sec``: how long the hub may take to publish what a witness has cosigned."""
        self._memory = memory
        self._tiles = tiles
        self._grace_sec = grace_sec
        self._clock = clock
        self._prefixes: set[TreeHead] = set()
        """Trees that are known to be the start of the one held."""
        self._ahead: dict[TreeHead, float] = {}
        """When larger checkpoints than the hub's were first seen elsewhere."""

    @property
    def is_waiting(self) -> bool:
        """Whether the hub has to publish a checkpoint that others have seen."""
        return any(self._clock() - since < self._grace_sec for since in self._ahead.values())

    # --- what the hub shows

    async def check_shown(self, signed: SignedHead | None) -> list[Finding]:
        """Compare what the hub shows with the largest checkpoint that it has shown before."""
        held = self._memory.held
        if held is None:
            return []
        if signed is None:
            return [
                Finding(
                    key=Key.ROLLBACK,
                    message=f"the hub says that it has no hub checkpoint; it has shown one of "
                    f"{_entries(held)} before, which this monitor keeps",
                )
            ]
        try:
            fork = await self.compare(held, signed)
        except Withheld as exc:
            return [self._lost(held, signed) if signed.head.size < held.head.size else _withheld(exc)]
        if fork is not None:
            return [_fork(Key.FORK, "", "it showed both at this address", fork)]
        if signed.head.size < held.head.size:
            return [await self._explain_old(held, signed)]
        return []

    async def _explain_old(self, held: SignedHead, signed: SignedHead) -> Finding:
        """Say whether the hub, which shows an old checkpoint, still has the longer log."""
        self._tiles.forget()
        try:
            await self._tiles.cut(held.head, held.head.size)
        except Withheld:
            return self._lost(held, signed)
        return Finding(
            key=Key.STALE,
            message=f"the hub shows an old hub checkpoint of {_entries(signed)}; it still serves its "
            f"log of {_entries(held)}, so a cache may be the cause, and this is not evidence",
        )

    @staticmethod
    def _lost(held: SignedHead, signed: SignedHead) -> Finding:
        return Finding(
            key=Key.ROLLBACK,
            message=f"the hub shows a hub log of {_entries(signed)} and does not serve the one of "
            f"{_entries(held)} that it signed; this is not evidence until the hub signs another log "
            f"of that size",
        )

    # --- what others have seen

    async def check_others(self, seen: Iterable[SeenCheckpoint]) -> list[Finding]:
        """Compare what others have seen with the largest checkpoint that the hub has shown."""
        found: list[Finding] = []
        ahead: set[TreeHead] = set()
        own = [each for each in seen if each.signed.head not in self._prefixes and self._is_own(each.signed)]
        for each in own:
            is_named = each.signed.head.origin == self._memory.known.origin
            finding = await self._other(each, ahead) if is_named else self._other_log(each)
            found += [finding] if finding is not None else []
        self._ahead = {head: since for head, since in self._ahead.items() if head in ahead}
        is_proven = any(finding.evidence is not None for finding in found)
        return found if is_proven else [*found, *self._compare_with_each_other(own)]

    def _is_own(self, signed: SignedHead) -> bool:
        """Return whether this hub signed a checkpoint, of its log or of one with another name."""
        try:
            hub_log.verify_hub_checkpoint(self._memory.known.identity, signed, origin=signed.head.origin)
        except SignatureError:
            return False
        return True

    def _other_log(self, each: SeenCheckpoint) -> Finding:
        return Finding(
            key=Key.INVALID,
            subject=f"{each.seen_by} {each.name}",
            message=f"{each.seen_by} {each.name} has a checkpoint of {each.signed.head.origin!r} that the "
            f"hub signed, and the hub shows {self._memory.known.origin!r}: it keeps two logs, or was renamed",
        )

    async def _other(self, each: SeenCheckpoint, ahead: set[TreeHead]) -> Finding | None:
        held, signed = self._memory.held, each.signed
        key = Key.COSIGNATURES_DISAGREE if each.seen_by is SeenBy.WITNESS else Key.FORK
        subject = f"{each.seen_by} {each.name}"
        if held is None:
            return self._compare_larger(each, held, ahead) if signed.head.size else None
        try:
            fork = await self.compare(held, signed)
        except Withheld as exc:
            if signed.head.size <= held.head.size:
                return _withheld(exc, subject)
            return self._compare_larger(each, held, ahead)
        if fork is not None:
            return _fork(key, subject, f"it shows one here, and {subject} has the other", fork)
        if signed.head.size <= held.head.size:
            self._prefixes = self._prefixes if len(self._prefixes) < MAX_PREFIXES else set()
            self._prefixes.add(signed.head)
        return None

    def _compare_larger(
        self, each: SeenCheckpoint, held: SignedHead | None, ahead: set[TreeHead]
    ) -> Finding | None:
        """Compare a checkpoint whose log the hub does not serve, because the hub's own is smaller."""
        if each.seen_by is SeenBy.ADDRESS:
            return None  # the monitor of that address compares the two
        head = each.signed.head
        ahead.add(head)
        since = self._ahead.setdefault(head, self._clock())
        if self._clock() - since < self._grace_sec:
            return None
        shown = f"a hub log of {_entries(held)}" if held is not None else "no hub checkpoint"
        return Finding(
            key=Key.ROLLBACK,
            subject=f"{each.seen_by} {each.name}",
            message=f"the hub shows {shown}, and {each.seen_by} {each.name} has a hub checkpoint of "
            f"{_entries(each.signed)} with the hub's signature; this is not evidence until the hub signs "
            f"another log of that size",
        )

    def _compare_with_each_other(self, own: Sequence[SeenCheckpoint]) -> list[Finding]:
        """Compare what others have seen with each other, at equal sizes."""
        first: dict[tuple[str, int], SeenCheckpoint] = {}
        for each in own:
            other = first.setdefault((each.signed.head.origin, each.signed.head.size), each)
            if other.signed.head.root != each.signed.head.root:
                identity = self._memory.known.identity
                fork = find_fork(identity, other.signed, each.signed, None)
                assert fork is not None
                subject = f"{each.seen_by} {each.name}"
                first_name = f"{other.seen_by} {other.name}"
                shown = (
                    f"{subject} has both"
                    if first_name == subject
                    else f"{first_name} has one, and {subject} has the other"
                )
                return [_fork(Key.FORK, subject, shown, fork)]
        return []

    # --- comparing

    async def compare(self, a: SignedHead, b: SignedHead) -> HubLogFork | None:
        """Return evidence if neither tree is the start of the other; raise ``Withheld`` if it is unknown."""
        earlier, later = sorted((a, b), key=lambda signed: signed.head.size)
        cut = await self._cut(later.head, earlier.head.size)
        return find_fork(self._memory.known.identity, earlier, later, cut)

    async def _cut(self, head: TreeHead, at: int) -> CutTree | None:
        """Return a tree cut at a size: from memory if it has the nodes, else from the hub's tiles."""
        if at == head.size:
            return None
        memory = self._memory
        if memory.checked == head.size and memory.tree.root == head.root:
            try:
                return hub_fork.cut(memory.node, at, head.size)
            except KeyError:
                pass  # before the window
        return await self._tiles.cut(head, at)


def _fork(key: Key, subject: str, shown: str, fork: HubLogFork) -> Finding:
    """Make the finding of a fork; ``shown`` says where the two checkpoints were seen."""
    earlier, later = (parse_signed_head(note) for note in (fork.earlier, fork.later))
    what = (
        f"two different hub logs of {_entries(later)}"
        if earlier.head.size == later.head.size
        else f"a hub log of {_entries(earlier)} that is not the start of its hub log of {_entries(later)}"
    )
    return Finding(key=key, subject=subject, message=f"the hub signed {what}; {shown}", evidence=fork)


def _entries(signed: SignedHead) -> str:
    return f"{signed.head.size} {'entry' if signed.head.size == 1 else 'entries'}"


def _withheld(exc: Withheld, subject: str = "") -> Finding:
    return Finding(key=Key.INVALID, subject=subject, message=exc.message)


def check_signature(memory: HubMemory, signed: SignedHead) -> None:
    """Raise ``SignatureError`` unless a key of the hub signed this checkpoint of its log.

    A key that had ended when the newest checked entry was made cannot have signed a larger tree.
    """
    known = memory.known
    since = known.newest_ts if signed.head.size > known.checked else None
    hub_log.verify_hub_checkpoint(known.identity, signed, origin=known.origin, since=since)
