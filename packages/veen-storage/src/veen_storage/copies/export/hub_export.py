"""Write an export of a whole hub: every label, and the hub log that says which labels there are (P1).

``veen_core.hub_export`` declares what the folder holds. The hub checkpoint commits to every label that
existed when it was signed, so a label that was left out shows (``hub_check``). Labels and entries after it
are exported too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from veen_core.export import IDENTITY, ExportForm
from veen_core.hub_export import HUB_EXPORT, LABELS, HubManifest
from veen_core.ids import StreamSeq
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.copies.clone import read_parts
from veen_storage.copies.consistent_prefix import HubLogCut
from veen_storage.copies.export.folder import ExportFolder
from veen_storage.copies.export.write import export
from veen_storage.copies.hub_source import HubSource
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import StorageError
from veen_storage.opening.observer import Source

ReportProgress = Callable[[int, int], None]
"""Called with the number of labels written so far, and the number of all."""


def export_hub(
    source: Source | HubSource,
    target: Path,
    *,
    form: ExportForm = "set",
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> HubManifest:
    """Write every label and the hub log, as of one moment, into a new folder; return once it is durable."""
    files = files or Files()
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    hub = source if isinstance(source, HubSource) else HubSource(source)
    store, cut = hub.main, hub.cut()
    files.make_directories(target / LABELS)
    for done, held in enumerate(cut.labels, start=1):
        folder = target / LABELS / held.label.hex()
        export(
            hub.of(held.label),
            held.label,
            StreamSeq(1),
            held.stream_seq,
            folder,
            form=form,
            files=files,
            hub_checkpoints=_checkpoints(store, cut.hub_log),
        )
        progress(done, len(cut.labels))
    if cut.hub_log is not None:
        _write_hub_log(store, cut.hub_log, Layout(target), files)
    with ExportFolder(target, files) as top:
        identity = store.artifacts().files(store.layout)
        for name in IDENTITY:
            top.write(name, identity.get(name) or (store.layout.root / name).read_bytes())
    manifest = HubManifest(
        hub_id=store.identity.hub_id,
        labels=len(cut.labels),
        size=cut.hub_log.size if cut.hub_log is not None else 0,
    )
    files.sync_directory(target / LABELS)
    files.sync_directory(target)
    files.replace(target / HUB_EXPORT, manifest.encode())
    return manifest


def _checkpoints(store: Source, cut: HubLogCut | None) -> list[SignedHead]:
    """Return the hub checkpoints of a cut: the published one, if it is not newer, and the newest."""
    if cut is None:
        return []
    newest, published = parse_signed_head(cut.checkpoint), store.hub_log.published
    return [published, newest] if published is not None and published.head.size <= cut.size else [newest]


def _write_hub_log(store: Source, cut: HubLogCut, target: Layout, files: Files) -> None:
    """Write the hub log up to a cut; the published hub checkpoint only if all its entries are there."""
    files.make_directory(target.hub_log)
    with ExportFolder(target.hub_log, files) as folder:
        entries = folder.begin(target.hub_log_entries.name)
        for part in read_parts(store.hub_log.entries_file, end=cut.entries_bytes):
            entries.write(part)
        folder.end(entries, target.hub_log_entries.name)
        folder.write(target.hub_log_checkpoint.name, cut.checkpoint)
        published = store.hub_log.published
        if published is not None and published.head.size <= cut.size:
            folder.write(target.hub_log_published.name, published.encode())
    files.sync_directory(target.hub_log)
