"""What a witness must never forget: the newest cosigned checkpoint of each log, and the contradictions.

One LMDB environment, written in synced transactions by one process. Keys:

- ``w``: the witness's verifier key, so that a memory is never used with another key;
- ``h`` + SHA-256 of an origin: the newest cosigned note, with the log's signatures and the cosignature;
- ``c`` + SHA-256 of an origin + id: a contradiction.

Nothing here can be rebuilt from elsewhere. A witness that lost its memory must not sign with its old key: it
would cosign a second history of a log whose first it has cosigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.ids import UnixTime
from veen_core.tlog.note import NoteKey, cosigned_at
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_hub.witness.contradiction import LogContradiction
from veen_hub.witness.rules import Known
from veen_storage import DamageError, MismatchError, ViewStore

NEW_WITNESS: Final = (
    "make a new witness with `veen witness init`: "
    "the old key could cosign a second history now that its memory is lost"
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
    def known(self) -> Known:
        return Known(self.signed.head.size, self.signed.head.root)


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
        newest = self.heads[-1].head
        return not self.found.is_evidence and Known(newest.size, newest.root) == cosigned.known


@dataclass(frozen=True, slots=True)
class Commit:
    """What one transaction changes."""

    heads: Mapping[str, CosignedHead]
    kept: Sequence[KeptContradiction]
    answered: Sequence[KeptContradiction]

    def __bool__(self) -> bool:
        return bool(self.heads or self.kept)


class Memory:
    """The open memory.

    A change takes three calls: ``plan`` and ``adopt`` in the thread that reads the dictionaries, ``write`` in
    between in any thread, one at a time.
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
        """Make an empty memory."""
        with ViewStore(path) as store:
            store.write({_WITNESS: key.text.encode()})

    def _load(self, path: Path, key: NoteKey) -> None:
        owner = self._store.get(_WITNESS)
        if owner != key.text.encode():
            whose = owner.decode(errors="replace") if owner is not None else "no witness"
            raise MismatchError(
                f"{path} is the memory of {whose}, not of {key.text}",
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

    def plan(self, heads: Mapping[str, CosignedHead], found: Iterable[LogContradiction]) -> Commit:
        """Decide what a transaction writes; contradictions beyond the bounds are counted and dropped."""
        answered = [
            each
            for origin, head in heads.items()
            for each in self.contradictions.get(origin, {}).values()
            if each.is_answered_by(head)
        ]
        return Commit(heads, list(self._within_bounds(found)), answered)

    def write(self, commit: Commit) -> None:
        """Make the changes durable in one synced transaction."""
        puts = {_HEAD + origin_hash(origin): head.signed.encode() for origin, head in commit.heads.items()}
        puts |= {_contradiction_key(each): each.encoded for each in commit.kept}
        self._store.write(puts, [_contradiction_key(each) for each in commit.answered])

    def adopt(self, commit: Commit) -> None:
        """Change the dictionaries; what they hold is durable."""
        self.heads.update(commit.heads)
        for each in commit.kept:
            self._keep(each)
        for each in commit.answered:
            if self.contradictions[each.origin].pop(each.found.id, None) is not None:
                self._bytes -= len(each.encoded)

    def _keep(self, new: KeptContradiction) -> None:
        self.contradictions.setdefault(new.origin, {})[new.found.id] = new
        self._bytes += len(new.encoded)

    def _within_bounds(self, new: Iterable[LogContradiction]) -> Iterator[KeptContradiction]:
        """Yield those that are new and fit: the first ones of a log are kept, later ones are not."""
        accepted: dict[str, KeptContradiction] = {}
        size = self._bytes
        for each in map(KeptContradiction.of, new):
            known = self.contradictions.get(each.origin, {}) | accepted
            if each.found.id in known:
                continue
            is_evidence = each.found.is_evidence
            room = MAX_BYTES if is_evidence else MAX_BYTES // 2
            same = [
                one
                for one in known.values()
                if (one.origin, one.found.is_evidence) == (each.origin, is_evidence)
            ]
            if len(same) >= MAX_PER_LOG or size + len(each.encoded) > room:
                self.dropped += 1
                continue
            accepted[each.found.id] = each
            size += len(each.encoded)
            yield each

    def close(self) -> None:
        self._store.close()


def _time_of(signed: SignedHead, key: NoteKey) -> UnixTime:
    for signature in filter(key.made, signed.note.signatures):
        return cosigned_at(signature.signature)
    raise DecodeError("the newest checkpoint has no cosignature of this witness", where=signed.head.origin)


def origin_hash(origin: str) -> bytes:
    return sha256(origin.encode()).digest()


def _contradiction_key(kept: KeptContradiction) -> bytes:
    return _CONTRADICTION + origin_hash(kept.origin) + bytes.fromhex(kept.found.id)
