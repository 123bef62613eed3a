"""The fork record: which hub a fork left, where and when, as it lies in the fork's directory (ADR 0007).

``fork.cbor`` is signed by the new hub and, if its key was at hand, by the old one; the cuts beside it are the
leaves of a tree whose root it holds. ``fork`` makes one; fsck verifies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable


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


_UNSIGNED: Final = Signature(bytes(Signature.SIZE))
_RESTORE: Final = "restore it from a clone"


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
    verify_record(record, new, old)
    verify_cuts(record, lines)


def verify_record(record: Fork, new: HubIdentity, old: HubIdentity) -> None:
    """The record by itself: who signed it."""
    hub_identity.verify_identity(new, pinned=record.new_hub)
    hub_identity.verify_identity(old, pinned=record.old_hub)
    digest = fork_digest(record)
    verify(new.hub_keys[0].hub_pk, digest, record.new_sig, "fork.new_sig ADR 0007")
    if record.old_sig is not None:
        _verify_any(old, digest, record.old_sig)


def verify_cuts(record: Fork, lines: Iterable[ForkCut]) -> None:
    """The cuts by a record that holds."""
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
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise unreadable(layout.fork.name, exc) from exc
    except DecodeError as exc:
        raise DamageError(layout.fork.name, None, str(exc), _RESTORE) from exc
    try:
        return record, [ForkCut.decode(line) for line in cbor.split_sequence(layout.fork_cuts.read_bytes())]
    except FileNotFoundError:
        raise DamageError(layout.fork_cuts.name, None, "is missing", _RESTORE) from None
    except OSError as exc:
        raise unreadable(layout.fork_cuts.name, exc) from exc
    except DecodeError as exc:
        raise DamageError(layout.fork_cuts.name, None, str(exc), _RESTORE) from exc


def ancestors(root: Path) -> Iterator[tuple[Fork, Path]]:
    """The hub this one was forked from, the one that was forked from, and so on; with their directories."""
    while (found := read_fork(root)) is not None:
        root = Layout(root).ancestor(found[0].old_hub)
        yield found[0], root
