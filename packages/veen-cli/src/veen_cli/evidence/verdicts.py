"""Verdicts on pieces of evidence, and the roots that statements name."""

from __future__ import annotations

from dataclasses import dataclass, field

from veen_cli.frame.output import plural
from veen_cli.identity.verified_roots import KnownRoot
from veen_core.errors import VerificationError
from veen_core.ids import Label


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one object; ``holds`` is None if there is too little evidence to decide."""

    where: str
    what: str
    holds: bool | None
    why: str
    skipped: str | None = None
    """The check that was not made, and why; None if every check was made."""
    steps: tuple[str, ...] = ()
    """The steps of the proof in words, for evidence that has several."""

    @property
    def complete(self) -> bool:
        return self.skipped is None

    @property
    def text(self) -> str:
        """The reasons, with the check that was skipped."""
        return self.why if self.skipped is None else f"{self.why}; {self.skipped}"


@dataclass(slots=True)
class Roots:
    """The roots stated so far, by label and size."""

    known: dict[Label, dict[int, KnownRoot]] = field(default_factory=dict)

    def add(self, stated: KnownRoot) -> None:
        """Add a root; raise if another root is known for the same size (§9 Resync)."""
        other = self.known.setdefault(stated.label, {}).setdefault(stated.size, stated)
        if other.root != stated.root:
            raise contradiction(other)

    def of(self, label: Label) -> dict[int, KnownRoot]:
        return self.known.get(label, {})


def contradiction(known: KnownRoot) -> VerificationError:
    """Make the error about another root of the same tree (§9 Resync)."""
    return VerificationError(
        f"contradicts {known.source}: the root of {plural(known.size, 'entry', 'entries')} of label "
        f"{known.label.hex()[:16]}… differs",
        action="keep both as evidence: the hub has signed two histories",
    )


class Undecided(Exception):  # noqa: N818 - a verdict, not an error
    """There is too little evidence to decide."""
