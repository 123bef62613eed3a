"""What a witness must never forget: the newest cosigned checkpoint of each log, and the contradictions.

One LMDB environment, written in synced transactions by one process. Keys:

- ``w``: the witness's verifier key, so that a memory is never used with another key;
- ``h`` + SHA-256 of an origin: the newest cosigned note, with the log's signatures and the cosignature;
- ``c`` + SHA-256 of an origin + id: a contradiction.

Nothing here can be rebuilt from elsewhere. A witness that lost its memory must not sign with its old key: it
would cosign a second history of a log whose first it has cosigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


@dataclass(slots=True)
class Changes:
    """What one commit writes."""

    heads: dict[str, CosignedHead] = field(default_factory=dict)
    found: dict[str, list[LogContradiction]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.heads or self.found)


class Memory:
    """The open memory; ``commit`` and ``close`` are called by one thread, readers read the dictionaries."""

    def __init__(self, path: Path, key: NoteKey) -> None:
        if not (path / "data.mdb").is_file():
            raise DamageError(f"{path}/data.mdb", None, "is missing", NEW_WITNESS)
        try:
            self._store = ViewStore(path)
        except DamageError as exc:
            raise DamageError(exc.file, exc.offset, exc.what, NEW_WITNESS) from exc
        self.heads: dict[str, CosignedHead] = {}
        self.contradictions: dict[str, dict[str, LogContradiction]] = {}
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
                found = LogContradiction.decode(value)
                self.contradictions.setdefault(found.heads[0].head.origin, {})[found.id] = found
                self._bytes += len(value)
        except DecodeError as exc:
            raise DamageError(f"{path}/data.mdb", None, str(exc), NEW_WITNESS) from exc

    def _scan(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(kind, bytes([kind[0] + 1]))

    def known(self, origin: str) -> Known:
        cosigned = self.heads.get(origin)
        return cosigned.known if cosigned is not None else Known()

    def commit(self, changes: Changes) -> None:
        """Make the changes durable in one synced transaction; only then change the dictionaries."""
        kept = [found for each in changes.found.values() for found in self._within_bounds(each)]
        answered = [
            each for origin, head in changes.heads.items() for each in self._answered_by(origin, head)
        ]
        puts = {_head_key(origin): head.signed.encode() for origin, head in changes.heads.items()}
        puts |= {_contradiction_key(found): found.encode() for found in kept}
        if not puts:
            return
        self._store.write(puts, [_contradiction_key(each) for each in answered])
        # Durable from here on.
        self.heads |= changes.heads
        for found in kept:
            self.contradictions.setdefault(_origin_of(found), {})[found.id] = found
            self._bytes += len(found.encode())
        for found in answered:
            self.contradictions[_origin_of(found)].pop(found.id, None)
            self._bytes -= len(found.encode())

    def _within_bounds(self, new: Iterable[LogContradiction]) -> Iterator[LogContradiction]:
        """Yield those that are new and fit; the first ones of a log are kept, later ones are counted."""
        accepted: dict[str, LogContradiction] = {}
        for found in new:
            known = self.contradictions.get(_origin_of(found), {}) | accepted
            if found.id in known:
                continue
            room = MAX_BYTES if found.is_evidence else MAX_BYTES // 2
            same = sum(each.is_evidence == found.is_evidence for each in known.values())
            if same >= MAX_PER_LOG or self._bytes + len(found.encode()) > room:
                self.dropped += 1
                continue
            accepted[found.id] = found
            yield found

    def _answered_by(self, origin: str, head: CosignedHead) -> Iterator[LogContradiction]:
        """Yield the unproven pairs whose larger checkpoint is now cosigned."""
        for found in self.contradictions.get(origin, {}).values():
            newest = found.heads[-1].head
            if not found.is_evidence and Known(newest.size, newest.root) == head.known:
                yield found

    def close(self) -> None:
        self._store.close()


def _time_of(signed: SignedHead, key: NoteKey) -> UnixTime:
    for signature in filter(key.made, signed.note.signatures):
        return cosigned_at(signature.signature)
    raise DecodeError("the newest checkpoint has no cosignature of this witness", where=signed.head.origin)


def origin_hash(origin: str) -> bytes:
    return sha256(origin.encode()).digest()


def _origin_of(found: LogContradiction) -> str:
    return found.heads[0].head.origin


def _head_key(origin: str) -> bytes:
    return _HEAD + origin_hash(origin)


def _contradiction_key(found: LogContradiction) -> bytes:
    return _CONTRADICTION + origin_hash(_origin_of(found)) + bytes.fromhex(found.id)
