"""Verify an export of a whole hub: each label, and that the hub log names no other (RESOLUTIONS P1).

In this order: the manifest and the identity; the entries of the hub log, each continuing its label; the root
over them and the hub's signature; each label's export, with every one of its heads, and that the first
entry after the newest head is not one that the hub must have covered; the hub checkpoints to which the
labels lead, of which none may be newer than the hub log; last, that no label of the hub log is missing or
ends before its newest head.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.errors import DecodeError, VeenError
from veen_core.export import IDENTITY
from veen_core.hub_export import HUB_EXPORT, HUB_HEAD, LABELS, HubManifest
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HeadTable, LabelHead, verify_hub_checkpoint
from veen_core.ids import HubId, Label, StreamSeq
from veen_core.tlog.tree import Tree, leaf_hash
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_storage.commit.hub_log import LENGTH_BYTES
from veen_storage.copies.export.check import read_exported_identity, verify_export
from veen_storage.copies.export.label_heads import ExportedHeads
from veen_storage.copies.export.sequence import damaged, read_small
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_ENTRIES, HUB_LOG_PUBLISHED, Layout
from veen_storage.errors import MismatchError, StorageError
from veen_storage.read.hub_log_view import read_entry


@dataclass(frozen=True, slots=True)
class VerifiedHubExport:
    """The facts that a verified export of a whole hub proves."""

    manifest: HubManifest
    identity: HubIdentity
    entries: int
    """Entries of all labels."""
    checkpoint: SignedHead | None
    """The newest hub checkpoint; None if the hub log is empty, so that nothing shows a missing label."""
    published: SignedHead | None
    """The published hub checkpoint, with its cosignatures."""
    uncovered: tuple[Label, ...]
    """Labels with entries after the hub checkpoint, which does not commit to these entries."""
    followed_all: bool
    """Whether the rules about writers and tokens were checked in every label (``VerifiedExport``)."""


@dataclass(slots=True)
class _HubLog:
    """The hub log of an export, as far as it was read."""

    path: Path
    table: HeadTable = field(default_factory=HeadTable)
    tree: Tree = field(default_factory=Tree)
    offsets: dict[Label, array[int]] = field(default_factory=dict)
    """Offset of each head, by label: the heads themselves would take too much memory."""
    published: SignedHead | None = None

    def read(self) -> None:
        """Read all entries; each must continue its label."""
        offset = 0
        with self.path.open("rb") as file:
            while (data := read_entry(file)) is not None:
                try:
                    head = LabelHead.decode(data)
                    self.table.add(head)
                except VeenError as exc:
                    raise damaged(HUB_LOG_ENTRIES, f"entry {self.tree.size}: {exc}", offset) from exc
                self.tree.append(leaf_hash(data))
                self.offsets.setdefault(head.label, array("Q")).append(offset)
                offset += LENGTH_BYTES + len(data)
                self._check_published()
        if offset != self.path.stat().st_size:
            raise damaged(HUB_LOG_ENTRIES, f"ends within entry {self.tree.size}", offset)

    def _check_published(self) -> None:
        head = self.published.head if self.published is not None else None
        if head is not None and head.size == self.tree.size and head.root != self.tree.root:
            raise damaged(HUB_LOG_PUBLISHED, f"has another root than the hub log at size {head.size}")

    def check_shown(self, shown: Mapping[TreeHead, Label]) -> None:
        """Check the hub checkpoints to which labels lead: each must be one of this hub log."""
        roots = self._roots_at({head.size for head in shown})
        for head, label in shown.items():
            name = f"{LABELS}/{label.hex()}/{HUB_HEAD}"
            if head.size > self.tree.size:
                what = (
                    f"leads to a hub log of {head.size} entries, but {HUB_LOG_ENTRIES} has {self.tree.size}"
                )
                raise damaged(name, f"{what} (RESOLUTIONS P1)")
            if head.root != roots[head.size]:
                raise damaged(name, f"leads to another root than the hub log at size {head.size}")

    def _roots_at(self, sizes: set[int]) -> dict[int, bytes]:
        """Return the root at each of these sizes that the hub log has."""
        tree, roots = Tree(), {self.tree.size: self.tree.root}
        if all(size >= self.tree.size for size in sizes):
            return roots
        with self.path.open("rb") as file:
            while (data := read_entry(file)) is not None:
                tree.append(leaf_hash(data))
                if tree.size in sizes:
                    roots[tree.size] = tree.root
        return roots

    def heads_of(self, label: Label) -> ExportedHeads:
        """Return the heads of one label."""
        heads: dict[StreamSeq, LabelHead] = {}
        if (offsets := self.offsets.get(label)) is not None:
            with self.path.open("rb") as file:
                for offset in offsets:
                    file.seek(offset)
                    head = LabelHead.decode(read_entry(file) or b"")  # decoded before, in ``read``
                    heads[head.upto_seq] = head
        return ExportedHeads(heads, self.table.hub_ts)


def verify_hub_export(path: Path, pinned: HubId) -> VerifiedHubExport:
    """Raise unless the folder is a complete, verifiable export of all labels of the pinned hub."""
    manifest = _read_manifest(path, pinned)
    for name in (*IDENTITY, LABELS):
        if not (path / name).exists():
            raise damaged(name, "is missing")
    identity, _registry = read_exported_identity(path, pinned)
    log, checkpoint = _read_hub_log(Layout(path), identity, manifest)
    sizes: dict[Label, StreamSeq] = {}
    shown: dict[TreeHead, Label] = {}
    followed_all = True
    for folder in sorted((path / LABELS).iterdir()):
        label = _label_of(folder)
        verified = verify_export(folder, pinned, log.heads_of(label))
        if verified.manifest.label != label or verified.manifest.from_seq != 1:
            raise damaged(f"{LABELS}/{folder.name}", "is not an export of this label from its first entry on")
        sizes[label] = verified.manifest.to_seq
        followed_all &= verified.followed_all
        if verified.hub_checkpoint is not None:
            shown.setdefault(verified.hub_checkpoint.head, label)
    log.check_shown(shown)
    for label, head in sorted(log.table.newest.items()):
        _check_label(label, head, sizes.get(label))
    if len(sizes) != manifest.labels:
        raise damaged(LABELS, f"has {len(sizes)} labels, but {HUB_EXPORT} says {manifest.labels}")
    newest = {label: head.upto_seq for label, head in log.table.newest.items()}
    uncovered = tuple(label for label, size in sizes.items() if newest.get(label) != size)
    return VerifiedHubExport(
        manifest, identity, sum(sizes.values()), checkpoint, log.published, uncovered, followed_all
    )


def _check_label(label: Label, head: LabelHead, size: StreamSeq | None) -> None:
    name = f"{LABELS}/{label.hex()}"
    if size is None:
        raise damaged(name, f"is missing: the hub log has its head at entry {head.upto_seq} (RESOLUTIONS P1)")
    if size < head.upto_seq:
        what = f"ends at entry {size}, but the hub log has its head at entry {head.upto_seq} (RESOLUTIONS P1)"
        raise damaged(name, what)


def _read_manifest(path: Path, pinned: HubId) -> HubManifest:
    try:
        manifest = HubManifest.decode(read_small(path / HUB_EXPORT))
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{path} is not an export of a hub: it has no {HUB_EXPORT}") from None
    except DecodeError as exc:
        raise damaged(HUB_EXPORT, str(exc)) from exc
    if manifest.hub_id != pinned:
        raise MismatchError(
            f"the export comes from hub {manifest.hub_id.hex()}, but the pinned hub is {pinned.hex()}"
        )
    return manifest


def _label_of(folder: Path) -> Label:
    try:
        return Label.from_hex(folder.name)
    except DecodeError:
        raise damaged(f"{LABELS}/{folder.name}", "is not the folder of a label") from None


def _read_hub_log(
    layout: Layout, identity: HubIdentity, manifest: HubManifest
) -> tuple[_HubLog, SignedHead | None]:
    """Read and verify the hub log; the manifest says whether there is one."""
    log = _HubLog(layout.hub_log_entries)
    if not manifest.size and not layout.hub_log.exists():
        return log, None
    checkpoint = _read_note(layout.hub_log_checkpoint, HUB_LOG_CHECKPOINT, identity)
    if checkpoint is None:
        raise damaged(HUB_LOG_CHECKPOINT, "is missing")
    log.published = _read_note(layout.hub_log_published, HUB_LOG_PUBLISHED, identity)
    try:
        log.read()
    except FileNotFoundError:
        raise damaged(HUB_LOG_ENTRIES, "is missing") from None
    head = checkpoint.head
    if (head.size, head.root) != (log.tree.size, log.tree.root) or head.size != manifest.size:
        what = f"size or root is not that of the {log.tree.size} entries in {HUB_LOG_ENTRIES}"
        raise damaged(HUB_LOG_CHECKPOINT, what)
    if log.published is not None and log.published.head.size > head.size:
        raise damaged(HUB_LOG_PUBLISHED, f"has size {log.published.head.size}, more than the hub log")
    return log, checkpoint


def _read_note(path: Path, name: str, identity: HubIdentity) -> SignedHead | None:
    """Return a hub checkpoint that the hub signed; None if the file does not exist."""
    try:
        signed = parse_signed_head(read_small(path))
        verify_hub_checkpoint(identity, signed, origin=signed.head.origin)
    except FileNotFoundError:
        return None
    except VeenError as exc:
        raise damaged(name, str(exc)) from exc
    return signed
