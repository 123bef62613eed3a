"""Replay guards: each admin request and each piece of evidence counts once (H19, AUTH1 3.4)."""

from __future__ import annotations

import struct
from typing import Final

from veen_core.ids import UnixTime
from veen_core.status import MAX_ADMIN_AGE
from veen_storage import ViewStore

MAX_SEEN_EVIDENCE: Final = 1_024
_TIME: Final = struct.Struct(">Q")
_ADMIN: Final = b"admin/"
_AFTER_ADMIN: Final = b"admin0"
"""The smallest key after all keys that begin with ``admin/``."""


class AdminReplayGuard:
    """Digests of the admin requests that were carried out, on disk, so that a restart forgets none (H19).

    A digest is kept for as long as its signature could be presented again.
    """

    def __init__(self, state: ViewStore) -> None:
        self._state = state

    def is_replay(self, digest: bytes, signed_at: UnixTime, now: UnixTime) -> bool:
        """Record the digest durably, and return whether it was recorded before."""
        key = _ADMIN + digest
        if self._state.get(key) is not None:
            return True
        oldest = now - 2 * MAX_ADMIN_AGE
        expired = [
            other
            for other, packed in self._state.scan(_ADMIN, _AFTER_ADMIN)
            if _TIME.unpack(packed)[0] < oldest
        ]
        self._state.write({key: _TIME.pack(signed_at)}, expired)
        return False


class SeenEvidence:
    """Digests of reported equivocations; forgets all of them once there are ``MAX_SEEN_EVIDENCE``."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, digest: bytes) -> bool:
        """Remember the digest, and return whether it was unknown."""
        if digest in self._seen:
            return False
        if len(self._seen) >= MAX_SEEN_EVIDENCE:
            self._seen.clear()
        self._seen.add(digest)
        return True
