"""Verification of the files of bundles (P6, AGB0 4.5).

``check_bundle`` checks all parts, also after a fault, and lists every fault that it finds;
``verify_bundle`` raises the first. A chain of bundles is verified in the order of ``in_chain_order``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from veen_bridge.bulk_verification import bulk_verification
from veen_bridge.bundles.reader import BundleFiles, PartFile
from veen_core.bundle import BundleError, BundleHeader, BundleTrust, BundleVerdict, BundleVerifier
from veen_core.errors import VeenError
from veen_core.ids import BundleId

Advance = Callable[[int], None]
"""Called with the number of events that were read since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """The result of verifying one bundle."""

    bundle_id: BundleId
    header: BundleHeader
    faults: tuple[VeenError, ...]
    verdict: BundleVerdict | None
    """None if there are faults."""


def check_bundle(
    files: BundleFiles,
    trust: BundleTrust,
    *,
    previous: BundleHeader | None = None,
    threads: int | None = None,
    advance: Advance | None = None,
) -> BundleReport:
    """Verify all files of a bundle; a fault in one part does not keep the others from being verified."""
    faults: list[VeenError] = []
    verdict: BundleVerdict | None = None
    try:
        verifier = BundleVerifier(files.trailer, trust, previous=previous, threads=threads)
    except VeenError as exc:
        return BundleReport(bundle_id=files.bundle_id, header=files.header, faults=(exc,), verdict=None)
    faults += [
        BundleError(
            f"{part.path.name} and {files.parts[part.number].path.name} are the same part", part=part.number
        )
        for part in files.doubled
    ]
    damaged: set[int] = set()
    with bulk_verification(files.header.counts.events):
        for number in sorted(files.parts):
            try:
                _verify_part(verifier, files.parts[number], advance)
            except VeenError as exc:
                faults.append(exc)
                damaged.add(number)
    if absent := [number for number in verifier.missing if number not in damaged]:
        faults.append(_missing(absent, len(files.header.parts)))
    elif not damaged:
        try:
            verdict = verifier.finish()
        except BundleError as exc:
            faults.append(exc)
    if faults:
        verdict = None
    return BundleReport(bundle_id=files.bundle_id, header=files.header, faults=tuple(faults), verdict=verdict)


def _missing(absent: list[int], total: int) -> BundleError:
    names = ", ".join(map(str, absent[:8])) + (" …" if len(absent) > 8 else "")
    found = f"part {names} of {total} is missing"
    return BundleError(found, part=absent[0], action="give the files of all parts")


def _verify_part(verifier: BundleVerifier, part: PartFile, advance: Advance | None) -> None:
    part.check_size()
    checked = verifier.begin_part(part.trailer, part.index_bytes())
    for block in part.blocks():
        events = checked.feed(block)
        if advance is not None:
            advance(len(events))
    checked.finish()


def verify_bundle(
    files: BundleFiles,
    trust: BundleTrust,
    *,
    previous: BundleHeader | None = None,
    threads: int | None = None,
    advance: Advance | None = None,
) -> BundleVerdict:
    """Verify all files of a bundle; raise its first fault."""
    report = check_bundle(files, trust, previous=previous, threads=threads, advance=advance)
    if report.verdict is None:
        raise report.faults[0]
    return report.verdict


def in_chain_order(bundles: Sequence[BundleFiles]) -> list[tuple[BundleFiles, BundleHeader | None]]:
    """Return the bundles, each with the header before it in its chain if that bundle was given too.

    The order is that of the chains: a bundle comes after the one that it continues.
    """
    known = {each.bundle_id: each for each in bundles}
    ordered: dict[BundleId, tuple[BundleFiles, BundleHeader | None]] = {}
    for start in bundles:
        path: dict[BundleId, BundleFiles] = {}
        at: BundleFiles | None = start
        while at is not None and at.bundle_id not in ordered and at.bundle_id not in path:
            path[at.bundle_id] = at
            at = known.get(at.header.prev_bundle_id)
        for each in reversed(path.values()):
            before = known.get(each.header.prev_bundle_id)
            ordered[each.bundle_id] = each, before.header if before is not None else None
    return list(ordered.values())
