"""The fork record: the old hub, the cut of each label, and the time of a fork (ADR 0007).

``fork.cbor`` is signed by the new hub and, if its key is available, by the old hub. It holds the root of a
tree over the cuts, which are in ``fork-cuts.cborseq``. ``fork`` writes the record; fsck verifies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from veen_core import cbor, hub_identity, stream
from veen_core.errors import DecodeError, VerificationError
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, HubPk, Label, MmrRoot, NodeHash, Signature, StreamSeq, UnixTime
from veen_core.keys import SigningKey, verify
from veen_core.mmr import Mmr
from veen_core.wire import Wire, array, int_map
from veen_storage.copies.consistent_prefix import Cut, take_cut
from veen_storage.disk.layout import Layout
from veen_storage.errors import RESTORE, DamageError, read_file
from veen_storage.index.lmdb_index import Index


@array("fork cut", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCut(Wire):
    """The cut of one label of the old hub: a line of fork-cuts.cborseq, in order of labels."""

    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot

    @property
    def node(self) -> NodeHash:
        """The leaf in the tree whose root the fork record holds, so that one cut can be proven alone."""
        return NodeHash(Ht("veen/fork-cut", self.encode()))


@int_map("fork", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Wire):
    """The fork record. Both signatures cover all fields before them."""

    ver: Literal[1] = 1
    old_hub: HubId
    new_hub: HubId
    hub_ts: UnixTime
    labels: int
    cuts_root: MmrRoot
    new_sig: Signature
    old_sig: Signature | None = None


_UNSIGNED: Final = Signature(bytes(Signature.SIZE))


def cuts_of(cut: Cut) -> list[ForkCut]:
    """Return the lines of fork-cuts.cborseq, in order of labels."""
    lines = (ForkCut(label=c.label, upto_seq=c.stream_seq, mmr_root=c.mmr_root) for c in cut.labels)
    return sorted(lines, key=lambda line: line.label)


def cuts_root(lines: Iterable[ForkCut]) -> MmrRoot:
    tree = Mmr()
    for line in lines:
        tree.append(line.node)
    return tree.root


def fork_digest(record: Fork) -> bytes:
    """Return the digest that both keys sign: the hash of the record without the signatures."""
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


def verify_record(record: Fork, new: HubIdentity, old: HubIdentity) -> None:
    """Raise unless the new hub signed the record and, if it has ``old_sig``, the old hub too."""
    hub_identity.verify_identity(new, pinned=record.new_hub)
    hub_identity.verify_identity(old, pinned=record.old_hub)
    digest = fork_digest(record)
    verify(new.hub_keys[0].hub_pk, digest, record.new_sig, "fork.new_sig ADR 0007")
    if record.old_sig is not None:
        _verify_any(old, digest, record.old_sig)


def verify_cuts(record: Fork, lines: Iterable[ForkCut]) -> None:
    """Raise unless the root over the cuts is the one in the record, which was verified before."""
    tree = Mmr()
    for line in lines:
        tree.append(line.node)
    if (tree.size, tree.root) != (record.labels, record.cuts_root):
        raise VerificationError("fork.cuts_root (ADR 0007): is not the root of the cuts")


def check_heads(ancestor: Path, lines: list[ForkCut]) -> None:
    """Raise unless the ancestor's labels end at the cuts; fsck of the ancestor checks its log."""
    with closing(Index(Layout(ancestor).index, readonly=True)) as index:
        if cuts_of(take_cut(index)) != lines:
            raise DamageError(
                Layout(ancestor).index.name, None, "its labels do not end at the cuts of the fork"
            )


def _verify_any(old: HubIdentity, digest: bytes, signature: Signature) -> None:
    """Verify the old hub's signature under any of its keys, since it may have added keys after the fork."""
    for key in old.hub_keys:
        try:
            verify(key.hub_pk, digest, signature, "fork.old_sig ADR 0007")
        except VerificationError:
            continue
        return
    raise VerificationError("fork.old_sig (ADR 0007): verifies under no key of the old hub")


def read_fork(root: Path) -> tuple[Fork, list[ForkCut]] | None:
    """Return the record and its cuts; None if the directory is not a fork."""
    layout = Layout(root)
    if not layout.fork.exists():
        return None
    path = layout.fork
    try:
        record = Fork.decode(read_file(path))
        path = layout.fork_cuts
        return record, [ForkCut.decode(line) for line in cbor.split_sequence(read_file(path))]
    except DecodeError as exc:
        raise DamageError(path.name, None, str(exc), RESTORE) from exc


def ancestors(root: Path) -> Iterator[tuple[Fork, Path]]:
    """Yield the fork records from this hub back to the oldest, each with the directory of its old hub."""
    while (found := read_fork(root)) is not None:
        root = Layout(root).ancestor(found[0].old_hub)
        yield found[0], root
