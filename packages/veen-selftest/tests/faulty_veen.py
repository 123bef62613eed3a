"""The real ``veen`` command with one fault.

    python faulty_veen.py --fault-file=FILE … and the arguments of veen

FILE names the fault; it may also be empty, or name a fault of the hub. The fault is chosen when the command
starts, and only the modules that it changes are imported for it.
"""

# ruff: noqa: PLC0415 - a command imports only the modules that its fault changes

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any


def lose_last_event() -> None:
    """Import all events of a bundle but the last, and report that all are imported."""
    from veen_bridge.importing.bundle_import import BundleImport

    origins, run = BundleImport._origins, BundleImport.run

    async def all_but_last(self: BundleImport) -> AsyncIterator[Any]:
        async for origin in origins(self):
            if origin.seq < self._plan.header.to_seq:
                yield origin

    async def claim_all(self: BundleImport, advance: Any) -> Any:
        done = await run(self, advance)
        return dataclasses.replace(done, written=done.written + 1)

    BundleImport._origins, BundleImport.run = all_but_last, claim_all  # type: ignore[assignment, method-assign]


def change_origin_receipts() -> None:
    """Store an imported event with one wrong bit in the signature of its origin's receipt."""
    from veen_bridge.transfer.copies import CopyMaker

    wrap = CopyMaker._wrap

    def wrong(self: CopyMaker, origin: Any, now: Any) -> Any:
        receipt = bytearray(origin.entry.receipt_bytes)
        receipt[-1] ^= 1  # the last field is the signature
        entry = dataclasses.replace(origin.entry, receipt_bytes=bytes(receipt))
        return wrap(self, dataclasses.replace(origin, entry=entry), now)

    CopyMaker._wrap = wrong  # type: ignore[method-assign]


def overlook_gaps() -> None:
    """Import a bundle although the one before it is missing."""
    from veen_bridge.importing import admission

    admission._gap = lambda *_about: None  # type: ignore[assignment]


def find_no_difference() -> None:
    """Reconcile two zones and find no difference."""
    from veen_bridge.commands import reconcile

    compare = reconcile.compare
    reconcile.compare = lambda *sides: dataclasses.replace(compare(*sides), findings=())


def verify_no_bundle() -> None:
    """Import a bundle without verifying it first."""
    from veen_bridge.importing import run

    run.verify_bundle = lambda *_about, **_named: None  # type: ignore[assignment]


def record_no_refusal() -> None:
    """Refuse a bundle, and write no report of it to the audit log."""
    from veen_bridge.importing.audit import AuditLog

    async def nothing(*_about: Any) -> None:
        pass

    AuditLog.report_failure = nothing  # type: ignore[method-assign]


def see_no_way_back() -> None:
    """Find every token harmless."""
    from veen_bridge.commands import doctor

    right = doctor.check_paths

    def harmless(*about: Any, **named: Any) -> Any:
        return tuple(dataclasses.replace(finding, ok=True) for finding in right(*about, **named))

    doctor.check_paths = harmless


def promote_without_handover() -> None:
    """Promote a replica without a handover, although ``--unplanned`` is not given."""
    from veen_cli.hub import cutover

    cutover._handover_of = lambda *_about, **_named: None  # type: ignore[assignment]


def call_lost_receipts_kept() -> None:
    """Report every receipt as kept."""
    from veen_cli.hub import cutover

    right = cutover.lost_receipts

    def kept(*about: Any) -> Iterator[Any]:
        return (dataclasses.replace(fate, fate="kept") for fate in right(*about))

    cutover.lost_receipts = kept


FAULTS: dict[str, Callable[[], None]] = {
    "loses the last event of a bundle": lose_last_event,
    "changes the receipts of origins": change_origin_receipts,
    "overlooks gaps between bundles": overlook_gaps,
    "finds no difference between zones": find_no_difference,
    "verifies no bundle": verify_no_bundle,
    "records no refusal": record_no_refusal,
    "sees no way back": see_no_way_back,
    "promotes without a handover": promote_without_handover,
    "calls lost receipts kept": call_lost_receipts_kept,
}
"""Faults by name; each changes the command before it runs."""


def run(given: list[str]) -> None:
    option, *arguments = given
    fault = Path(option.removeprefix("--fault-file=")).read_text(encoding="utf-8")
    if fault in FAULTS:
        FAULTS[fault]()
    from veen_cli.frame.start import main

    sys.argv[1:] = arguments
    main()


if __name__ == "__main__":
    run(sys.argv[1:])
