"""The state of a witness, which must never be lost: each log's newest cosigned checkpoint, contradictions.

One LMDB environment, written in synced transactions by one process. Keys:

- ``w``: the witness's verifier key, so that a state is never used with another key;
- ``h`` + SHA-256 of an origin: the newest cosigned note, with the log's signatures and the cosignature;
- ``c`` + SHA-256 of an origin + id: a contradiction.

Nothing here can be rebuilt from elsewhere. A witness that lost its state must not sign with its old key: it
would cosign a second history of a log whose first it has cosigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.ids import UnixTime
from veen_core.tlog.note import NoteKey, cosigned_at
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_hub.witness.contradiction import LogContradiction
from veen_hub.witness.rules import NewestCosigned
from veen_storage import DamageError, MismatchError, ViewStore

NEW_WITNESS: Final = (
    "make a new witness with `veen witness init`: "
    "the old key could cosign a second history now that its state is lost"
)
MAX_PER_LOG: Final = 8
"""Pieces of evidence that are kept of one log, and as many unproven pairs."""
MAX_BYTES: Final = 64 * 1_048_576
"""Bytes of all evidence; unproven pairs are kept up to half of it."""
_WITNESS: Final = b"w"
_HEAD: Final = b"h"
_CONTRADICTION: Final = b"c"


@dataclass(frozen=True, slots=True)
class CosignedHead:
    """The newest cosigned checkpoint of a log."""

    signed: SignedHead
    """With the log's signatures and the witness's."""
    cosigned_at: UnixTime

    @property
    def known(self) -> NewestCosigned:
        return NewestCosigned(self.signed.head.size, self.signed.head.root)


@dataclass(frozen=True, slots=True)
class KeptContradiction:
    """A contradiction with its parsed checkpoints."""

    found: LogContradiction
    heads: tuple[SignedHead, ...]
    encoded: bytes = field(repr=False)

    @staticmethod
    def of(found: LogContradiction) -> KeptContradiction:
        return KeptContradiction(found, found.heads, found.encode())

    @property
    def origin(self) -> str:
        return self.heads[0].head.origin

    def is_answered_by(self, cosigned: CosignedHead) -> bool:
        """Return whether the pair is unproven, and its larger checkpoint is the one that was cosigned."""
        newest, head = self.heads[-1].head, cosigned.signed.head
        same = (newest.origin, newest.size, newest.root) == (head.origin, head.size, head.root)
        return same and not self.found.is_evidence


@dataclass(slots=True)
class WitnessChanges:
    """The changes of one transaction."""

    heads: dict[str, CosignedHead] = field(default_factory=dict)
    """New checkpoints by origin."""
    kept: list[KeptContradiction] = field(default_factory=list)
    answered: list[KeptContradiction] = field(default_factory=list)
    """Unproven pairs to remove."""

    def __bool__(self) -> bool:
        return bool(self.heads or self.kept)


class WitnessState:
    """The open state.

    A change takes two calls: ``write``, in any thread, one at a time, and then ``adopt``, in the thread that
    reads the dictionaries.
    """

    def __init__(self, path: Path, key: NoteKey) -> None:
        if not (path / "data.mdb").is_file():
            raise DamageError(f"{path}/data.mdb", None, "is missing", NEW_WITNESS)
        try:
            self._store = ViewStore(path)
        except DamageError as exc:
            raise DamageError(exc.file, exc.offset, exc.what, NEW_WITNESS) from exc
        self.heads: dict[str, CosignedHead] = {}
        self.contradictions: dict[str, dict[str, KeptContradiction]] = {}
        """By origin and id."""
        self.dropped = 0
        """Contradictions of this run that were beyond the bounds."""
        self._bytes = 0
        try:
            self._load(path, key)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def create(path: Path, key: NoteKey) -> None:
        """Make an empty state."""
        with ViewStore(path) as store:
            store.write({_WITNESS: key.text.encode()})

    def _load(self, path: Path, key: NoteKey) -> None:
        owner = self._store.get(_WITNESS)
        if owner != key.text.encode():
            whose = owner.decode(errors="replace") if owner is not None else "no witness"
            raise MismatchError(
                f"{path} is the state of {whose}, not of {key.text}",
                action="put back the key that belongs to it",
            )
        try:
            for _name, value in self._scan(_HEAD):
                signed = parse_signed_head(value)
                self.heads[signed.head.origin] = CosignedHead(signed, _time_of(signed, key))
            for _name, value in self._scan(_CONTRADICTION):
                self._keep(KeptContradiction.of(LogContradiction.decode(value)))
        except DecodeError as exc:
            raise DamageError(f"{path}/data.mdb", None, str(exc), NEW_WITNESS) from exc

    def _scan(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(kind, bytes([kind[0] + 1]))

    def write(self, changes: WitnessChanges) -> None:
        """Make the changes durable in one synced transaction."""
        puts = {_HEAD + origin_hash(origin): head.signed.encode() for origin, head in changes.heads.items()}
        puts |= {_contradiction_key(each): each.encoded for each in changes.kept}
        self._store.write(puts, [_contradiction_key(each) for each in changes.answered])

    def adopt(self, changes: WitnessChanges) -> None:
        """Change the dictionaries; what they hold is durable."""
        self.heads.update(changes.heads)
        for each in changes.kept:
            self._keep(each)
        for each in changes.answered:
            if self.contradictions[each.origin].pop(each.found.id, None) is not None:
                self._bytes -= len(each.encoded)

    def _keep(self, new: KeptContradiction) -> None:
        self.contradictions.setdefault(new.origin, {})[new.found.id] = new
        self._bytes += len(new.encoded)

    def has_room(self, new: KeptContradiction, waiting: Sequence[KeptContradiction]) -> bool:
        """Return whether a contradiction is to be kept; ``waiting`` are those that are not written yet.

        The first ones of a log are kept. Later ones are counted in ``dropped``, unless they are kept already.
        """
        others = [*self.contradictions.get(new.origin, {}).values(), *waiting]
        same_log = [each for each in others if each.origin == new.origin]
        if any(each.found.id == new.found.id for each in same_log):
            return False
        is_evidence = new.found.is_evidence
        alike = sum(each.found.is_evidence == is_evidence for each in same_log)
        size = self._bytes + sum(len(each.encoded) for each in (*waiting, new))
        if alike < MAX_PER_LOG and size <= (MAX_BYTES if is_evidence else MAX_BYTES // 2):
            return True
        self.dropped += 1
        return False

    def close(self) -> None:
        self._store.close()


def _time_of(signed: SignedHead, key: NoteKey) -> UnixTime:
    for signature in filter(key.is_named_by, signed.note.signatures):
        return cosigned_at(signature.signature)
    raise DecodeError("the newest checkpoint has no cosignature of this witness", where=signed.head.origin)


def origin_hash(origin: str) -> bytes:
    return sha256(origin.encode()).digest()


def _contradiction_key(kept: KeptContradiction) -> bytes:
    return _CONTRADICTION + origin_hash(kept.origin) + bytes.fromhex(kept.found.id)
