"""Fork: a new hub that keeps another's prefix as evidence and goes its own way (§0, §12, B13).

A fork has a hub_id of its own, hence a routing key and a label space of its own (§12). The prefix keeps
its labels, its receipts and the identity that signed them: it lies in ``ancestry/<old hub_id>/`` as a data
directory without keys, which opens for reading and which fsck judges by the old identity. ``fork.cbor``
ties the two together: which hub was left, where in each label, and when; signed by the new hub and, if
its key was at hand, by the old one. So a verifier who pinned either hub can check its half alone, and
whoever has both follows a stream from the old label into the new one. Why not otherwise: ADR 0007.

Order: the ancestor (itself a clone, VERSION last), fork-cuts.cborseq, fork.cbor, then the new directory
around them, its VERSION last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from veen_core import stream
from veen_core.ids import HubPk, Label, StreamSeq, UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_storage.copies.clone import Watch, copy_prefix
from veen_storage.copies.consistent_prefix import Cut, take_cut
from veen_storage.copies.fork_record import Fork, ForkCut, ancestors, read_fork, sign_fork, verify_fork
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import read_registry
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.read.observer import open_source
from veen_storage.store import Store, create

__all__ = ["Fork", "ForkCut", "ancestors", "check_fork", "cuts_of", "fork", "read_fork", "verify_fork"]


def fork(
    source: Store | Path,
    target: Path,
    new_key: SigningKey,
    now: UnixTime,
    upto: Mapping[Label, StreamSeq] | None = None,
    *,
    admin_pk: VerifyKey | None = None,
    keys_directory: Path | None = None,
    progress: Watch = lambda _progress: None,
    files: Files | None = None,
) -> Fork:
    """A new hub at ``target``, made from ``source`` as it stands or as far as ``upto`` says.

    Labels that ``upto`` does not name are kept whole; one that it cuts at 0 is left out. Limits, profile
    and compression are the old hub's; its admin is not: ``admin_pk`` is the new one's (H18).
    ``keys_directory`` is where the old hub keeps its keys, if not with its data; without any, the record
    carries the new hub's signature only.
    """
    files, layout = files or Files(), Layout(target)
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty: a fork needs a folder of its own")
    with open_source(source) as store:
        old = store.identity
        if stream.hub_id(HubPk(new_key.public)) == old.hub_id:
            raise StorageError("the new key is the old hub's first: a fork under it would be the same hub")
        cut = copy_prefix(
            store, layout.ancestor(old.hub_id), upto, keys_directory=None, progress=progress, files=files
        )
        old_key = hub_keys.read_keys(keys_directory or store.layout.keys, old).get(old.newest.key_id)
        registry = store.registry
    lines = cuts_of(cut)
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


def cuts_of(cut: Cut) -> list[ForkCut]:
    """The lines of a cut, in order of labels."""
    lines = (ForkCut(label=c.label, upto_seq=c.stream_seq, mmr_root=c.mmr_root) for c in cut.labels)
    return sorted(lines, key=lambda line: line.label)


def check_fork(root: Path) -> None:
    """Everything that ties a fork to its ancestor: signatures, cuts, and the ancestor's heads at them.

    The ancestor's own content is fsck's to judge, as for any data directory.
    """
    if (found := read_fork(root)) is None:
        raise AbsentError(f"{root} is not a fork: it has no fork.cbor")
    record, lines = found
    layout = Layout(root)
    new = hub_keys.read_identity(layout, read_registry(layout).hub_id)
    with Store(layout.ancestor(record.old_hub), background=False) as ancestor:
        verify_fork(record, lines, new, ancestor.identity)
        if cuts_of(take_cut(ancestor.index)) != lines:
            raise DamageError(layout.fork_cuts.name, None, "does not describe the ancestor beside it")
