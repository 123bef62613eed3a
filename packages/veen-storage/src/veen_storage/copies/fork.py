"""Fork: a new hub that keeps the log of an old hub as evidence and continues on its own (core §0, §12, B13).

A fork has its own hub_id, and therefore its own routing key and labels (core §12). The old hub's log keeps
its labels, its receipts and the identity that signed them: it is in ``ancestry/<old hub_id>/``, a data
directory without keys that opens for reading and that fsck verifies with the old identity. ``fork.cbor`` ties
the two together: it names the old hub, the cut of each label and the time, and is signed by the new hub and,
if the old hub's key is available, by the old one. A verifier that pinned one of the hubs can check that
hub's half alone; with both, it follows a stream from the old label into the new one. ADR 0007 has the
alternatives.

Order of writing: the ancestor (a clone, VERSION last), fork-cuts.cborseq, fork.cbor, then the new directory,
VERSION last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from veen_core import stream
from veen_core.ids import HubPk, Label, StreamSeq, UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_storage.copies.clone import ReportProgress, copy_prefix
from veen_storage.copies.consistent_prefix import Cut
from veen_storage.copies.fork_record import Fork, ForkCut, ancestors, cuts_of, read_fork, sign_fork
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import StorageError
from veen_storage.opening.observer import Source, open_source
from veen_storage.store import Store, create

__all__ = ["Fork", "ForkCut", "ancestors", "fork", "read_fork"]


def fork(
    source: Store | Path,
    target: Path,
    new_key: SigningKey,
    now: UnixTime,
    upto: Mapping[Label, StreamSeq] | None = None,
    *,
    admin_pk: VerifyKey | None = None,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Fork:
    """Create a new hub at ``target`` from ``source``, with the labels in ``upto`` cut there.

    Labels that ``upto`` does not name are kept whole; a label cut at 0 is left out. Limits, profile and
    compression are the old hub's; ``admin_pk`` is the new hub's admin (H18). ``keys_directory`` is where the
    old hub keeps its keys, if not in its data directory; without its key, only the new hub signs the record.
    """
    files = files or Files()
    with open_source(source) as store:
        return fork_from(
            store,
            target,
            new_key,
            now,
            lambda ancestor: copy_prefix(
                store, ancestor, upto, keys_directory=None, progress=progress, files=files
            ),
            admin_pk=admin_pk,
            keys_directory=keys_directory or store.layout.keys,
            files=files,
        )


def fork_from(
    store: Source,
    target: Path,
    new_key: SigningKey,
    now: UnixTime,
    copy: Callable[[Path], Cut],
    *,
    admin_pk: VerifyKey | None,
    keys_directory: Path,
    files: Files,
) -> Fork:
    """Create a new hub; ``copy`` clones the old one into a folder, and ``store`` has its identity."""
    layout, old, registry = Layout(target), store.identity, store.registry
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    if stream.hub_id(HubPk(new_key.public)) == old.hub_id:
        raise StorageError(
            "the new key is the old hub's first key, so the fork would get the same hub_id",
            action="make a new key with `veen keygen`",
        )
    lines = cuts_of(copy(layout.ancestor(old.hub_id)))
    old_key = hub_keys.read_keys(keys_directory, old).get(old.newest.key_id)
    record = sign_fork(old, new_key, now, lines, old_key)
    files.replace(layout.fork_cuts, b"".join(line.encode() for line in lines))
    files.replace(layout.fork, record.encode())
    create(
        target,
        new_key,
        now,
        limits=registry.limits,
        profile=registry.profile,
        zstd_level=registry.zstd_level,
        admin_pk=admin_pk,
        files=files,
        inherited=(layout.ancestry.name, layout.fork.name, layout.fork_cuts.name),
    )
    return record
