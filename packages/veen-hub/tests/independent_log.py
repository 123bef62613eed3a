"""A C2SP log that imports no VEEN code: trees from the definitions of RFC 6962 §2.1, notes from the pages."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache

from nacl.signing import SigningKey

ED25519 = b"\x01"


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


class IndependentLog:
    """A log of entries, with everything a witness asks for. ``seed`` is any text; it makes the key."""

    def __init__(
        self, origin: str, entries: Iterable[bytes] = (), *, seed: str = "", name: str | None = None
    ) -> None:
        self.origin = origin
        self.name = name or origin
        """Name of the key."""
        self.key = SigningKey(hashlib.sha256(f"{seed}/{origin}".encode()).digest())
        self.entries = list(entries)
        self._hash = cache(self._compute)

    @classmethod
    def of(cls, origin: str, size: int, *, salt: str = "", seed: str = "") -> IndependentLog:
        """Make a log of ``size`` entries; another salt gives other entries."""
        return cls(origin, [f"{salt}{n}".encode() for n in range(size)], seed=seed)

    def fork(self, at: int, size: int) -> IndependentLog:
        """Return a log with the same key that shares the first ``at`` entries only."""
        other = IndependentLog(self.origin, self.entries[:at], name=self.name)
        other.key = self.key
        other.entries += [f"forked {n}".encode() for n in range(at, size)]
        return other

    # --- RFC 6962 §2.1

    def _compute(self, start: int, end: int) -> bytes:
        if start == end:
            return hashlib.sha256().digest()
        if end - start == 1:
            return hashlib.sha256(b"\x00" + self.entries[start]).digest()
        middle = start + self._split(end - start)
        return hashlib.sha256(b"\x01" + self._hash(start, middle) + self._hash(middle, end)).digest()

    @staticmethod
    def _split(count: int) -> int:
        k = 1
        while 2 * k < count:
            k *= 2
        return k

    def root(self, size: int) -> bytes:
        return self._hash(0, size)

    def proof(self, old: int, new: int) -> list[bytes]:
        """Return PROOF(old, D[new])."""
        return self._subproof(old, 0, new, whole=True) if 0 < old < new else []

    def _subproof(self, m: int, start: int, end: int, *, whole: bool) -> list[bytes]:
        if m == end - start:
            return [] if whole else [self._hash(start, end)]
        k = self._split(end - start)
        if m <= k:
            return [*self._subproof(m, start, start + k, whole=whole), self._hash(start + k, end)]
        return [*self._subproof(m - k, start + k, end, whole=False), self._hash(start, start + k)]

    # --- notes

    @property
    def key_id(self) -> bytes:
        public = bytes(self.key.verify_key)
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + public).digest()[:4]

    @property
    def vkey(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{base64_of(ED25519 + bytes(self.key.verify_key))}"

    @property
    def hash(self) -> str:
        """The origin as the monitoring paths have it."""
        return hashlib.sha256(self.origin.encode()).hexdigest()

    def text(self, size: int, root: bytes | None = None, extension: str = "") -> str:
        return f"{self.origin}\n{size}\n{base64_of(self.root(size) if root is None else root)}\n{extension}"

    def signature(self, text: str) -> str:
        signed = self.key.sign(text.encode()).signature
        return f"— {self.name} {base64_of(self.key_id + signed)}\n"

    def checkpoint(self, size: int, root: bytes | None = None, extension: str = "") -> str:
        text = self.text(size, root, extension)
        return f"{text}\n{self.signature(text)}"

    def request(
        self, old: int, size: int, checkpoint: str | None = None, proof: list[bytes] | None = None
    ) -> str:
        """Return the body of add-checkpoint."""
        hashes = self.proof(old, size) if proof is None else proof
        lines = "".join(f"{base64_of(each)}\n" for each in hashes)
        return f"old {old}\n{lines}\n{checkpoint if checkpoint is not None else self.checkpoint(size)}"
