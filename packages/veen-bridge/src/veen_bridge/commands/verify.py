"""``veen bridge verify``: verify bundles offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from veen_bridge.bundles import BundleFiles, BundleReport, check_bundle, in_chain_order, open_bundles
from veen_bridge.commands.arguments import read_policy, trust_options
from veen_cli.frame import Answer, Exit, Output, command, plural
from veen_core.bundle import BundleHeader, BundleTrust
from veen_core.errors import VeenError
from veen_core.ids import NO_BUNDLE, ClientId, HubId


@command(
    "veen bridge verify /media/usb --hub 62c1…",
    "veen bridge verify orders-*.veenb --hub 62c1… --bridge 9f86… --witnesses policy --json",
    name="verify",
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path, exists=True)
)
@trust_options
def verify(
    out: Output,
    *,
    files: tuple[Path, ...],
    pinned: HubId | None,
    bridge: ClientId | None,
    witnesses: Path | None,
) -> Answer:
    """Verify bundles offline: parts, chain, entries, roots, heads and signatures.

    Give all files of a bundle, or a folder. Bundles of one stream are also checked against each other: each
    must continue the one before it. Every fault is named with its part and its entry. Exits with 3 if there
    is a fault, or if no hub is pinned.
    """
    trust = BundleTrust(pinned=pinned, bridge=bridge, policy=read_policy(witnesses))
    opened = open_bundles(files)
    total = sum(each.header.counts.events for each in opened.bundles)
    reports: list[tuple[BundleReport, bool]] = []
    with out.progress("verifying", total) as progress:
        for each, previous in in_chain_order(opened.bundles):
            report = check_bundle(each, trust, previous=previous, advance=progress.advance)
            reports.append((report, previous is not None))
    sound = not opened.faults and all(report.verdict is not None for report, _ in reports)
    valid = sound and pinned is not None
    if not opened.bundles and not opened.faults:
        raise click.UsageError("there is no bundle file in the given folders.")
    data = {
        "valid": valid,
        "pinned": pinned.hex() if pinned is not None else None,
        "files": [fault_object(fault) for fault in opened.faults],
        "bundles": [report_object(report) for report, _ in reports],
    }
    lines = [
        *_file_lines(opened.faults),
        *(line for each in reports for line in _lines(*each, pinned=pinned)),
    ]
    if pinned is None:
        lines.append("Not verified: without a pinned hub the entries could be any hub's; give --hub HUB_ID.")
    return Answer(data, lines, Exit.OK if valid else Exit.PROTOCOL)


def fault_object(fault: VeenError) -> dict[str, Any]:
    """Return the JSON object of a fault, for ``--json``."""
    return {
        "part": getattr(fault, "part", None),
        "stream_seq": getattr(fault, "seq", None),
        "clause": getattr(fault, "clause", None),
        "fault": fault.message,
    }


def report_object(report: BundleReport) -> dict[str, Any]:
    """Return the JSON object of a verified bundle, for ``--json``."""
    verdict = report.verdict
    cosigned = verdict.cosigned if verdict is not None else None
    return {
        **header_object(report.header),
        "bundle_id": report.bundle_id.hex(),
        "valid": verdict is not None,
        "chained": verdict.chained if verdict is not None else None,
        "witnesses": [each.name.decode() for each in cosigned.witnesses] if cosigned is not None else None,
        "faults": [fault_object(fault) for fault in report.faults],
    }


def header_object(header: BundleHeader) -> dict[str, Any]:
    """Return the facts of a header for ``--json``."""
    return {
        "prev_bundle_id": header.prev_bundle_id.hex(),
        "source_hub_id": header.hub_id.hex(),
        "profile_id": header.profile_id.hex(),
        "bridge_id": header.bridge_id.hex(),
        "stream": header.stream,
        "label": header.label.hex(),
        "epoch": header.epoch,
        "from_seq": header.from_seq,
        "to_seq": header.to_seq,
        "from_ts": header.from_ts,
        "to_ts": header.to_ts,
        "events": header.counts.events,
        "attachments": header.counts.attachments,
        "attachment_rule": str(header.attachments),
        "unopened": header.counts.unopened,
        "root_before": header.root_before.hex(),
        "root_after": header.root_after.hex(),
        "hub_log_size": header.signed_head.head.size,
        "exported_at": header.exported_at,
        "parts": len(header.parts),
    }


def title(files: BundleFiles | BundleReport) -> str:
    """Return the first line about a bundle."""
    header = files.header
    span = f"entries {header.from_seq} to {header.to_seq}"
    what = f"heartbeat after entry {header.to_seq}" if header.is_heartbeat else span
    return f"{header.stream}  {what}  bundle {files.bundle_id.hex()[:16]}…"


def _file_lines(faults: list[Any]) -> Iterator[str]:
    for fault in faults:
        yield f"✗ {fault}"


def _lines(report: BundleReport, has_previous: bool, *, pinned: HubId | None) -> Iterator[str]:
    verdict, header = report.verdict, report.header
    mark = "✗" if verdict is None else "?" if pinned is None else "✓"
    yield f"{mark} {title(report)}"
    for fault in report.faults:
        yield f"    {fault}"
    if verdict is None:
        return
    if header.is_heartbeat:
        found = f"entry {header.to_seq} is the label's head" if header.to_seq else "the stream had no entry"
        yield f"    nothing new: {found} in the hub log at size {header.signed_head.head.size}"
    else:
        yield (
            f"    {plural(header.counts.events, 'entry', 'entries')}, every MSG and RECEIPT verified, in "
            f"{plural(len(header.parts), 'part')}; {plural(header.counts.attachments, 'attachment')}"
        )
    if has_previous:
        yield f"    continues bundle {header.prev_bundle_id.hex()[:16]}…"
    elif header.prev_bundle_id == NO_BUNDLE:
        yield "    the first bundle of its chain"
    else:
        yield f"    the bundle before this one, {header.prev_bundle_id.hex()[:16]}…, was not given"
    if verdict.cosigned is not None:
        names = ", ".join(each.name.decode() for each in verdict.cosigned.witnesses)
        yield f"    hub checkpoint at size {header.signed_head.head.size}, cosigned by {names}"
