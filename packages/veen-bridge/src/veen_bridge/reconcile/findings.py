"""The result of a reconciliation: findings, consistent regions and the gaps beyond them (AGB0 4.7, K2)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from veen_bridge.reconcile.intervals import Interval
from veen_core.ids import BundleId, HubId, Label, MmrRoot


class FindingKind(enum.StrEnum):
    """The kind of a difference. Every kind that is not in ``HARMLESS`` makes a reconciliation fail."""

    MISSING = "missing"
    """An exported bundle was not imported."""
    PARTIAL = "partial"
    """Some events of a bundle are in the import stream, others are not."""
    LOST = "lost"
    """A bundle is reported as imported, but events of it are missing: origins without an event (J2)."""
    DUPLICATE_BUNDLE = "duplicate_bundle"
    """A bundle is reported as imported more than once."""
    DUPLICATE_EVENT = "duplicate_event"
    """One origin has several imported events (J1)."""
    OUT_OF_ORDER = "out_of_order"
    """A bundle was imported before one that precedes it, and no operator allowed the gap between them."""
    UNKNOWN_BUNDLE = "unknown_bundle"
    """A bundle is reported as imported, but the source zone did not export it."""
    CONTRADICTION = "contradiction"
    """The two zones report different ranges or roots for one bundle."""
    NO_ORIGIN = "no_origin"
    """An event of an import stream has no origin that the source zone exported (J1)."""
    WRONG_ROOT = "wrong_root"
    """The imported events of a bundle do not lead to the root that the source hub signed."""
    ALLOWED_GAP = "allowed_gap"
    """A bundle was imported although bundles before it are missing; an operator allowed it."""
    FILLED_GAP = "filled_gap"
    """A bundle left out by an allowed gap was imported in the end: its events come after its successors'."""
    REPLACED = "replaced"
    """A bundle was not imported, but other bundles, exported later, brought all of its entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDifference:
    """One difference between the zones."""

    kind: FindingKind
    detail: str
    bundle_id: BundleId | None = None
    source: tuple[HubId, Label] | None = None
    span: Interval | None = None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": str(self.kind), "detail": self.detail}
        if self.bundle_id is not None:
            found["bundle_id"] = self.bundle_id.hex()
        if self.source is not None:
            found |= {"source_hub_id": self.source[0].hex(), "source_label": self.source[1].hex()}
        if self.span is not None:
            found |= {"from_seq": self.span.from_seq, "to_seq": self.span.to_seq}
        return found


class GapKind(enum.StrEnum):
    """The reason why positions beyond the consistent region are not consistent."""

    NOT_IMPORTED = "not_imported"
    NOT_EXPORTED = "not_exported"
    UNPROVEN = "unproven"
    """Imported, but not connected with the consistent region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneGap:
    """Positions of a source label beyond its consistent region."""

    span: Interval
    kind: GapKind

    def as_json(self) -> dict[str, Any]:
        return {"from_seq": self.span.from_seq, "to_seq": self.span.to_seq, "kind": str(self.kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The positions of a source label whose import is proven, and every gap beyond them (K2).

    Every position from ``from_seq`` to ``to_seq`` has exactly one imported event, and the tree of these
    events has the root ``mmr_root`` that the source hub signed.
    """

    source: tuple[HubId, Label]
    from_seq: int
    to_seq: int
    """``from_seq - 1`` if nothing is proven."""
    mmr_root: MmrRoot | None
    from_ts: int | None
    to_ts: int | None
    """hub_ts of the first and the last proven event at the source."""
    gaps: tuple[ZoneGap, ...]
    stream: str | None = None
    """The source stream's name, if the source zone says it."""

    def as_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "source_hub_id": self.source[0].hex(),
            "source_label": self.source[1].hex(),
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "mmr_root": self.mmr_root.hex() if self.mmr_root is not None else None,
            "from_ts": self.from_ts,
            "to_ts": self.to_ts,
            "gaps": [gap.as_json() for gap in self.gaps],
        }


HARMLESS: Final = frozenset((FindingKind.ALLOWED_GAP, FindingKind.FILLED_GAP, FindingKind.REPLACED))
"""Facts about an import that an operator has allowed; no event is missing because of them alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The result of comparing the two zones."""

    regions: tuple[Region, ...]
    findings: tuple[ZoneDifference, ...]
    exported: int
    """Bundles that the source zone exported, heartbeats included."""
    imported: int
    """Bundles that the target zone reports as imported."""
    failed: int
    """Failed imports that the target zone reports; each bundle may have been imported later."""

    @property
    def consistent(self) -> bool:
        """Whether every exported event is imported exactly once, and nothing else is imported."""
        return all(finding.kind in HARMLESS for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "consistent": self.consistent,
            "exported_bundles": self.exported,
            "imported_bundles": self.imported,
            "failed_imports": self.failed,
            "regions": [region.as_json() for region in self.regions],
            "findings": [finding.as_json() for finding in self.findings],
        }
