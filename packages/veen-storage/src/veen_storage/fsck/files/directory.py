"""Everything outside of the log: registry, identity, keys, fork record, unknown files (core §8.4, §14.1)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.errors import DecodeError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_storage.copies.fork_record import Fork, ForkCut, check_heads, read_fork, verify_cuts, verify_record
from veen_storage.disk import hub_keys
from veen_storage.disk.files import SECRET_MODE
from veen_storage.disk.hub_keys import NextIdentity
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import REPAIR, RESTORE, DamageError, MismatchError, StorageError
from veen_storage.fsck.index_check import run_isolated
from veen_storage.fsck.report import Fault, Report

KNOWN_NAMES: Final = frozenset(
    {
        "VERSION",
        "registry.cbor",
        "hub-identity.cbor",
        "hub-identity.sig",
        "hub-key-map.cbor",
        "hub-identity.next",
        "checkpoint-binding.cbor",
        "keys",
        "lock",
        "journal",
        "journal-kept",
        "handover.cbor",
        "evidence",
        "log",
        "hublog",
        "attachments",
        "index",
        "fork.cbor",
        "fork-cuts.cborseq",
        "ancestry",
        "views",
    }
)


def add_fault(report: Report, exc: Exception, file: str, remedy: str = RESTORE) -> None:
    """Add an error as a fault; a ``DamageError`` brings its own file and offset."""
    if isinstance(exc, DamageError):
        report.faults.append(Fault(file=exc.file, offset=exc.offset, what=exc.what, remedy=remedy))
    else:
        report.faults.append(Fault(file=file, what=str(exc), remedy=remedy))


def check_registry(layout: Layout, report: Report, *, part: bool = False) -> Registry | None:
    """Check VERSION and registry; return the registry if it can be read, even if it was changed."""
    try:
        return read_registry(layout, part=part)
    except MismatchError:
        raise
    except StorageError as exc:
        add_fault(report, exc, layout.version.name)
    try:
        registry = Registry.decode(layout.registry.read_bytes())
    except (OSError, VeenError):
        report.notes.append("without the registry nothing else could be checked")
        return None
    report.notes.append("the rest was checked with the registry as it is, which may not be the original")
    return registry


def check_identity(layout: Layout, registry: Registry, report: Report) -> HubIdentity | None:
    """Check the identity, its chain to hub_id, and the files that follow from it (core §8.4)."""
    identity, pending = _read_identity(layout, report)
    if identity is None:
        return None
    try:
        hub_identity.verify_identity(identity, pinned=registry.hub_id)
    except VeenError as exc:
        add_fault(report, exc, (layout.identity_next if pending else layout.identity).name)
        return None
    if pending:
        report.notes.append("hub-identity.next: a key rotation was interrupted; the next start finishes it")
        return identity
    try:
        for problem in hub_keys.identity_problems(layout, identity):
            add_fault(report, problem, layout.identity_signature.name, REPAIR)
    except DamageError as exc:  # a file is missing
        add_fault(report, exc, exc.file, REPAIR)
    return identity


def _read_identity(layout: Layout, report: Report) -> tuple[HubIdentity | None, bool]:
    if layout.identity_next.exists():
        try:
            held = NextIdentity.decode(layout.identity_next.read_bytes())
            hub_identity.verify_identity_signature(held.identity, held.signature)
        except VeenError as exc:
            add_fault(report, exc, layout.identity_next.name)
        else:
            return held.identity, True
    try:
        return HubIdentity.decode(layout.identity.read_bytes()), False
    except (OSError, DecodeError) as exc:
        add_fault(report, exc, layout.identity.name)
        return None, False


def check_keys(layout: Layout, identity: HubIdentity, report: Report) -> None:
    """Check that key files are private, and that each holds the key of the identity that its name says."""
    known = {layout.key(key.key_id).name for key in identity.hub_keys}
    for path in sorted(layout.keys.glob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != SECRET_MODE:
            report.faults.append(
                Fault(file=f"keys/{path.name}", what=f"has mode {mode:04o}", remedy=f"chmod 600 {path}")
            )
        if path.name not in known:
            report.notes.append(
                f"keys/{path.name} belongs to no key of this hub; a rotation may have been abandoned"
            )
    for key in identity.hub_keys:
        try:
            hub_keys.read_keys(layout.keys, HubIdentity(hub_id=identity.hub_id, hub_keys=(key,)))
        except StorageError as exc:
            add_fault(report, exc, "keys", "restore it from a backup")


def check_fork_record(layout: Layout, identity: HubIdentity, report: Report) -> None:
    """Check the record of a fork: both hubs' signatures, and its cuts against the ancestor (ADR 0007)."""
    if not layout.fork.exists():
        left = [path.name for path in (layout.fork_cuts, layout.ancestry) if path.exists()]
        if left:
            what = f"is missing, but {' and '.join(left)} exist"
            report.faults.append(Fault(file=layout.fork.name, what=what))
        return
    file = layout.fork.name
    try:
        record, lines = read_fork(layout.root) or (None, [])
        assert record is not None
        old = _ancestor_identity(layout, record, report)
        if old is not None:
            verify_record(record, identity, old)
        file = layout.fork_cuts.name
        verify_cuts(record, lines)
        if old is not None:
            _check_ancestor_heads(layout.ancestor(record.old_hub), lines, report)
    except VeenError as exc:
        add_fault(report, exc, file)


def _check_ancestor_heads(ancestor: Path, lines: list[ForkCut], report: Report) -> None:
    try:
        run_isolated(check_heads, ancestor, lines)
    except DamageError as exc:
        file = f"{ancestor.parent.name}/{ancestor.name}/{exc.file}"
        report.faults.append(Fault(file=file, what=exc.what, remedy=RESTORE))


def _ancestor_identity(layout: Layout, record: Fork, report: Report) -> HubIdentity | None:
    """Return the identity of the old hub; None, and a fault, if it is missing or damaged."""
    root = layout.ancestor(record.old_hub)
    shown = str(root.relative_to(layout.root))
    if not root.is_dir():
        what = "is missing, but fork.cbor names it as the old hub's directory"
        report.faults.append(Fault(file=shown, what=what))
        return None
    try:
        return hub_keys.read_identity(Layout(root), record.old_hub)
    except DamageError as exc:
        report.faults.append(Fault(file=f"{shown}/{exc.file}", offset=exc.offset, what=exc.what))
    except (OSError, VeenError) as exc:
        report.faults.append(Fault(file=f"{shown}/{layout.identity.name}", what=str(exc)))
    return None


def check_names(layout: Layout, report: Report) -> None:
    """Check that the folders exist; note files that do not belong to a data directory."""
    for folder in layout.directories():
        if not folder.is_dir() and folder not in (layout.index, layout.hub_log):  # checked with the log
            report.faults.append(Fault(file=folder.name, what="the folder is missing"))
    for name in sorted(os.listdir(layout.root)):
        if name not in KNOWN_NAMES:
            report.notes.append(f"{name} does not belong to a data directory")
    for ancestor in sorted(layout.ancestry.glob("*")):
        report.notes.append(f"ancestry/{ancestor.name} was not checked: run `veen hub fsck` on it")
