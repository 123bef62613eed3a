"""Limits: what a result cannot prove, in the result itself (RESOLUTIONS P13).

The list follows from descriptor and coverage, so that a verifier can compute it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.result.coverage import SourceCoverage

ALWAYS = (
    ("never_submitted", "Events that a producer never submitted are in no log, and so in no result."),
    (
        "claimed_values",
        "event_time, subject_id, origin and payload are the producer's claims; the log proves that the "
        "producer made them, when, and in which order.",
    ),
    ("streams_not_named", "Streams that the scope does not name were not read."),
    (
        "later_entries",
        "Entries after to_seq of a source were not read; a hub can have committed some before the query.",
    ),
    (
        "opened_by_the_executor",
        "Receipts prove the place of each message, not its content. A verifier without reader keys relies on "
        "the executor for what the messages say and for which of them match.",
    ),
)
"""Limits of every result: code and sentence."""


def limits_of(descriptor: QueryDescriptor, coverage: Sequence[SourceCoverage]) -> tuple[dict[str, str], ...]:
    """Return the limits of a result, each as ``{"limit": code, "means": sentence}``."""
    found = (*ALWAYS, *_of_mode(descriptor), *_of_coverage(coverage))
    return tuple({"limit": code, "means": means} for code, means in found)


def _of_mode(descriptor: QueryDescriptor) -> Iterable[tuple[str, str]]:
    if descriptor.evidence.mode == EvidenceMode.NONE:
        yield "no_evidence", "No receipt of a matched event was verified (mode none)."
    elif descriptor.evidence.mode == EvidenceMode.SPOT:
        yield "sampled", "Only the receipts of sampled events were verified (mode spot)."


def _of_coverage(coverage: Sequence[SourceCoverage]) -> Iterable[tuple[str, str]]:
    for source in coverage:
        name = f"{source.stream} at hub {source.hub_id.hex()}, epoch {source.epoch}"
        if not source.scanned:
            yield "empty_source", f"{name}: no entries are known; nothing signed proves that there are none."
        if source.from_seq > 1:
            yield "starts_late", f"{name}: entries before {source.from_seq} were not read."
        if source.unopened:
            yield "unopened", f"{name}: {source.unopened} entries did not open with the executor's keys."
        if source.pruned:
            yield "pruned", f"{name}: retention removed {source.pruned} entries; they may have matched."
