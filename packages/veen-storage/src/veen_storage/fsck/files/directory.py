"""Everything outside of the log: registry, identity, keys, fork record, unknown files (core §8.4, §14.1)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final, TypeVar

from veen_core import hub_identity
from veen_core.errors import DecodeError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_storage.copies.fork_record import check_heads, read_fork, verify_cuts, verify_record
from veen_storage.disk import hub_keys
from veen_storage.disk.files import SECRET_MODE
from veen_storage.disk.hub_keys import NextIdentity
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import REPAIR, DamageError, MismatchError, StorageError
from veen_storage.fsck import index_check
from veen_storage.fsck.report import Report

T = TypeVar("T")
KNOWN_NAMES: Final = frozenset(
    [
        *("VERSION", "registry.cbor", "keys", "lock", "index", "log", "hublog", "journal", "journal-kept"),
        *("attachments", "views", "evidence", "hub-identity.cbor", "hub-identity.sig", "hub-identity.next"),
        *("hub-key-map.cbor", "checkpoint-binding.cbor", "handover.cbor"),
        *("fork.cbor", "fork-cuts.cborseq", "ancestry"),
    ]
)


def check_registry(layout: Layout, report: Report, *, part: bool = False) -> Registry | None:
    """Check VERSION and registry; return the registry if it can be read, even if it was changed."""
    try:
        return read_registry(layout, part=part)
    except MismatchError:
        raise
    except StorageError as exc:
        report.fault_of(exc, layout.version.name)
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
        report.fault_of(exc, (layout.identity_next if pending else layout.identity).name)
        return None
    if pending:
        report.notes.append("hub-identity.next: a key rotation was interrupted; the next start finishes it")
        return identity
    try:
        for problem in hub_keys.identity_problems(layout, identity):
            report.fault_of(problem, layout.identity_signature.name, REPAIR)
    except DamageError as exc:  # a file is missing
        report.fault_of(exc, exc.file, REPAIR)
    return identity


def _read_identity(layout: Layout, report: Report) -> tuple[HubIdentity | None, bool]:
    if layout.identity_next.exists():
        try:
            held = NextIdentity.decode(layout.identity_next.read_bytes())
            hub_identity.verify_identity_signature(held.identity, held.signature)
        except VeenError as exc:
            report.fault_of(exc, layout.identity_next.name)
        else:
            return held.identity, True
    try:
        return HubIdentity.decode(layout.identity.read_bytes()), False
    except (OSError, DecodeError) as exc:
        report.fault_of(exc, layout.identity.name)
        return None, False


def check_keys(layout: Layout, identity: HubIdentity, report: Report) -> None:
    """Check that key files are private, and that each holds the key of the identity that its name says."""
    known = {layout.key(key.key_id).name for key in identity.hub_keys}
    for path in sorted(layout.keys.glob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != SECRET_MODE:
            report.fault(f"keys/{path.name}", f"has mode {mode:04o}", f"chmod 600 {path}")
        if path.name not in known:
            report.notes.append(
                f"keys/{path.name} belongs to no key of this hub; a rotation may have been abandoned"
            )
    for key in identity.hub_keys:
        try:
            hub_keys.read_keys(layout.keys, HubIdentity(hub_id=identity.hub_id, hub_keys=(key,)))
        except StorageError as exc:
            report.fault_of(exc, "keys", "restore it from a backup")


def check_fork_record(layout: Layout, identity: HubIdentity, report: Report) -> None:
    """Check the record of a fork: both hubs' signatures, and its cuts against the ancestor (ADR 0007)."""
    if not layout.fork.exists():
        left = [path.name for path in (layout.fork_cuts, layout.ancestry) if path.exists()]
        if left:
            report.fault(layout.fork.name, f"is missing, but {' and '.join(left)} exist")
        return
    file = layout.fork.name
    try:
        record, lines = read_fork(layout.root) or (None, [])
        assert record is not None
        ancestor = Layout(layout.ancestor(record.old_hub))
        verify_record(
            record, identity, _of_ancestor(ancestor, hub_keys.read_identity, ancestor, record.old_hub)
        )
        file = layout.fork_cuts.name
        verify_cuts(record, lines)
        _of_ancestor(ancestor, index_check.run_isolated, check_heads, ancestor.root, lines)
    except VeenError as exc:
        report.fault_of(exc, file)


def _of_ancestor(ancestor: Layout, call: Callable[..., T], *args: object) -> T:
    """Call, and name the old hub's directory in errors about its files."""
    folder = f"{ancestor.root.parent.name}/{ancestor.root.name}"
    if not ancestor.root.is_dir():
        raise DamageError(folder, None, "is missing, but fork.cbor names it as the old hub's directory")
    try:
        return call(*args)
    except DamageError as exc:
        raise DamageError(f"{folder}/{exc.file}", exc.offset, exc.what) from exc
    except (OSError, VeenError) as exc:
        raise DamageError(f"{folder}/{ancestor.identity.name}", None, str(exc)) from exc


def check_names(layout: Layout, report: Report) -> None:
    """Check that the folders exist; note files that do not belong to a data directory."""
    for folder in layout.directories():
        if not folder.is_dir() and folder not in (layout.index, layout.hub_log):  # checked with the log
            report.fault(folder.name, "the folder is missing")
    for name in sorted(os.listdir(layout.root)):
        if name not in KNOWN_NAMES:
            report.notes.append(f"{name} does not belong to a data directory")
    for ancestor in sorted(layout.ancestry.glob("*")):
        report.notes.append(f"ancestry/{ancestor.name} was not checked: run `veen hub fsck` on it")
