"""Findings: what a monitor holds against a hub, each with a stable key (RESOLUTIONS P1-P3).

A finding that is a fact about signed statements is permanent: later good behaviour does not undo it. Any
other finding describes the hub at present, and ends when the check that made it passes again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from veen_core.hub_fork import HubLogFork, LabelFork
from veen_core.ids import UnixTime

Evidence = HubLogFork | LabelFork
MAX_OPEN_PER_KEY: Final = 100
"""Findings of one key at one hub that are listed; further ones are counted only."""
MAX_UNLISTED: Final = 10_000
"""Findings that are counted and not listed; beyond that, the count no longer rises."""


ENTRIES: Final = "entries"
"""Name of the check of the hub log's entries, whose findings are facts and not repeated in each round."""


class Key(enum.StrEnum):
    """The kinds of findings; programs that alert depend on the values."""

    FORK = "fork"
    """Two hub checkpoints of which neither is the start of the other."""
    ROLLBACK = "rollback"
    """The hub no longer has a hub log that it signed."""
    LABEL_FORK = "label_fork"
    """A label's head does not extend an earlier head or receipt of the label."""
    LABEL_ROLLED_BACK = "label_rolled_back"
    """The hub log has a smaller head of a label after a larger one."""
    SEEN_MISSING = "seen_missing"
    """The hub log does not cover an entry for which a client has a receipt."""
    COSIGNATURES_DISAGREE = "cosignatures_disagree"
    """A witness has cosigned another log than the one that the hub shows."""
    INVALID = "invalid"
    """The hub shows something that does not verify, or withholds a part of its log."""
    STALE = "stale"
    """The hub shows an old hub checkpoint, or one whose cosignatures are old."""
    NO_QUORUM = "no_quorum"
    """No quorum of witnesses has cosigned the hub log lately."""
    UNREACHABLE = "unreachable"
    """The hub, or a witness, does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; key and subject identify it."""

    key: Key
    subject: str = ""
    """The label, witness or file that it is about; empty for the hub as a whole."""
    message: str
    evidence: Evidence | None = None
    """Proof for a third party."""
    permanent: bool = False

    @property
    def is_permanent(self) -> bool:
        """Whether the finding is a fact about signed statements."""
        return self.permanent or self.evidence is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFinding:
    """A finding that has not ended."""

    finding: Finding
    check: str
    since: UnixTime
    file: Path | None = None
    """The file with the evidence."""
    kept: bool = False
    """Whether the finding is durable."""

    @property
    def id(self) -> tuple[str, Key, str]:
        return self.check, self.finding.key, self.finding.subject

    @property
    def is_proven(self) -> bool:
        return self.file is not None or self.finding.evidence is not None


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that began, or ended."""

    found: OpenFinding
    began: bool


@dataclass(slots=True)
class OpenFindings:
    """The findings of one hub that have not ended."""

    keep: Callable[[OpenFinding], OpenFinding]
    """Makes a permanent finding durable: writes its evidence, then its record; returns it with the file."""
    report: Callable[[FindingChange], None]
    open: dict[tuple[str, Key, str], OpenFinding] = field(default_factory=dict)
    unlisted: set[tuple[str, Key, str]] = field(default_factory=set)
    """Findings that are counted only, because there are too many of their key."""

    def restore(self, found: Iterable[OpenFinding]) -> None:
        """Take over permanent findings of earlier runs."""
        self.open |= {each.id: each for each in found}

    def settle(
        self, check: str, found: Sequence[Finding], now: UnixTime, *, asked: Container[str] | None = None
    ) -> None:
        """Record the outcome of a check that was made to its end; earlier findings that it lacks have ended.

        If the check was made for some subjects only, ``asked`` are those.
        """
        for finding in found:
            self.add(check, finding, now)
        present = {(check, finding.key, finding.subject) for finding in found}
        if asked is None and check != ENTRIES:
            self.unlisted = {name for name in self.unlisted if name[0] != check or name in present}
        for each in list(self.open.values()):
            is_asked = each.check == check and (asked is None or each.finding.subject in asked)
            if is_asked and each.id not in present and not each.finding.is_permanent:
                del self.open[each.id]
                self.report(FindingChange(each, began=False))

    def add(self, check: str, finding: Finding, now: UnixTime) -> None:
        """Record one finding of a check, whose other findings stay as they are.

        A finding that cannot be made durable is reported all the same; then the error is raised.
        """
        new = OpenFinding(finding=finding, check=check, since=now)
        known = self.open.get(new.id)
        if known is None and self.count(finding.key) >= MAX_OPEN_PER_KEY:
            if len(self.unlisted) < MAX_UNLISTED:
                self.unlisted.add(new.id)
            return
        if known is not None:
            new = self._merged(known, new)
        self.open[new.id] = new
        try:
            self._keep(new)
        finally:
            if known is None or new.is_proven > known.is_proven:
                self.report(FindingChange(self.open[new.id], began=True))

    def keep_all(self) -> None:
        """Make findings durable that could not be made so before."""
        for each in list(self.open.values()):
            self._keep(each)

    def _keep(self, found: OpenFinding) -> None:
        if found.finding.is_permanent and not found.kept:
            self.open[found.id] = replace(self.keep(found), kept=True)

    @staticmethod
    def _merged(known: OpenFinding, new: OpenFinding) -> OpenFinding:
        """Keep what is proven; otherwise take the newer message."""
        if known.finding.is_permanent and not (new.finding.evidence is not None and not known.is_proven):
            return known
        return replace(new, since=known.since)

    def count(self, key: Key) -> int:
        return sum(each.finding.key is key for each in self.open.values())

    def count_unlisted(self, key: Key) -> int:
        return sum(name[1] is key for name in self.unlisted)

    def __iter__(self) -> Iterator[OpenFinding]:
        """Iterate by key, then by the time at which a finding began."""
        order = list(Key)
        return iter(sorted(self.open.values(), key=lambda each: (order.index(each.finding.key), each.since)))
