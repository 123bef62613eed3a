"""Verdicts on pieces of evidence, and the roots that statements name."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    complete: bool = True
    """Whether every check was made; an export may have more writers than are followed."""
    steps: tuple[str, ...] = ()
    """The steps of the proof in words, for evidence that has several."""


@dataclass(slots=True)
class Roots:
    """The roots stated so far, by label and size."""

    known: dict[Label, dict[int, KnownRoot]] = field(default_factory=dict)

    def add(self, stated: KnownRoot) -> None:
        """Add a root; raise if another root is known for the same size (§9 Resync)."""
        other = self.known.setdefault(stated.label, {}).setdefault(stated.size, stated)
        if other.root != stated.root:
            raise VerificationError(
                f"contradicts {other.source}: the root of {stated.size} entries of label "
                f"{stated.label.hex()[:16]}… differs",
                action="keep both as evidence: the hub has signed two histories",
            )

    def of(self, label: Label) -> dict[int, KnownRoot]:
        return self.known.get(label, {})


class Undecided(Exception):  # noqa: N818 - a verdict, not an error
    """There is too little evidence to decide."""
