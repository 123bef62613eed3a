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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from veen_core import cbor, hub_identity, stream
from veen_core.errors import DecodeError, VerificationError
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, HubPk, Label, MmrRoot, NodeHash, Signature, StreamSeq, UnixTime, VerifyKey
from veen_core.keys import SigningKey, verify
from veen_core.mmr import Mmr
from veen_core.wire import Wire, array, int_map
from veen_storage import hub_keys
from veen_storage.clone import Watch, copy_prefix
from veen_storage.cut import Cut, take_cut
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.files import Files
from veen_storage.layout import Layout
from veen_storage.observer import opened
from veen_storage.registry import read_registry
from veen_storage.store import Store, create


@array("fork cut", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCut(Wire):
    """Where one label of the old hub was left; a line of fork-cuts.cborseq, in order of labels."""

    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot

    @property
    def node(self) -> NodeHash:
        """The leaf of the tree whose root the fork record holds: one cut can be shown without the others."""
        return NodeHash(Ht("veen/fork-cut", self.encode()))


@int_map("fork", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Wire):
    """Who left whom, where and when. Both signatures are over everything above them."""

    ver: Literal[1] = 1
    old_hub: HubId
    new_hub: HubId
    hub_ts: UnixTime
    labels: int
    cuts_root: MmrRoot
    new_sig: Signature
    old_sig: Signature | None = None


_UNSIGNED = Signature(bytes(Signature.SIZE))


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
    with opened(source) as store:
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


def cuts_root(lines: Iterable[ForkCut]) -> MmrRoot:
    tree = Mmr()
    for line in lines:
        tree.append(line.node)
    return tree.root


def fork_digest(record: Fork) -> bytes:
    """What both keys sign: the record without their signatures."""
    return Ht("veen/fork", replace(record, new_sig=_UNSIGNED, old_sig=None).encode())


def sign_fork(
    old: HubIdentity, new_key: SigningKey, now: UnixTime, lines: list[ForkCut], old_key: SigningKey | None
) -> Fork:
    unsigned = Fork(
        old_hub=old.hub_id,
        new_hub=stream.hub_id(HubPk(new_key.public)),
        hub_ts=now,
        labels=len(lines),
        cuts_root=cuts_root(lines),
        new_sig=_UNSIGNED,
    )
    digest = fork_digest(unsigned)
    old_sig = old_key.sign(digest) if old_key is not None else None
    return replace(unsigned, new_sig=new_key.sign(digest), old_sig=old_sig)


def verify_fork(record: Fork, lines: Iterable[ForkCut], new: HubIdentity, old: HubIdentity) -> None:
    """The record is the new hub's, its cuts are all there, and an old signature is the old hub's."""
    hub_identity.verify_identity(new, pinned=record.new_hub)
    hub_identity.verify_identity(old, pinned=record.old_hub)
    digest = fork_digest(record)
    verify(new.hub_keys[0].hub_pk, digest, record.new_sig, "fork.new_sig ADR 0007")
    if record.old_sig is not None:
        _verify_any(old, digest, record.old_sig)
    tree = Mmr()
    for line in lines:
        tree.append(line.node)
    if (tree.size, tree.root) != (record.labels, record.cuts_root):
        raise VerificationError("fork.cuts_root ADR 0007: is not the root of the cuts")


def _verify_any(old: HubIdentity, digest: bytes, signature: Signature) -> None:
    """Under the key that was the newest when the hub was left: any of the chain, since more may follow."""
    for key in old.hub_keys:
        try:
            verify(key.hub_pk, digest, signature, "fork.old_sig ADR 0007")
        except VerificationError:
            continue
        return
    raise VerificationError("fork.old_sig ADR 0007: no key of the old hub made it")


def read_fork(root: Path) -> tuple[Fork, list[ForkCut]] | None:
    """The record and its cuts; None if the directory is no fork."""
    layout = Layout(root)
    try:
        record = Fork.decode(layout.fork.read_bytes())
        lines = [ForkCut.decode(line) for line in cbor.split_sequence(layout.fork_cuts.read_bytes())]
    except FileNotFoundError as exc:
        if Path(exc.filename) == layout.fork:
            return None
        raise DamageError(layout.fork_cuts.name, None, "is missing", "restore it from a clone") from None
    except DecodeError as exc:
        raise DamageError(layout.fork.name, None, str(exc), "restore it from a clone") from exc
    return record, lines


def ancestors(root: Path) -> Iterator[tuple[Fork, Path]]:
    """The hub this one was forked from, the one that was forked from, and so on; with their directories."""
    while (found := read_fork(root)) is not None:
        root = Layout(root).ancestor(found[0].old_hub)
        yield found[0], root


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
