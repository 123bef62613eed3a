"""Replay guards: each admin request and each piece of evidence counts once (H19, AUTH1 3.4)."""

from __future__ import annotations

import struct
import threading
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
    """Digests of the admin requests that were carried out, kept on disk across restarts (H19).

    A digest is kept for as long as its signature could be presented again. May be used from several threads.
    """

    def __init__(self, state: ViewStore) -> None:
        self._state = state
        self._lock = threading.Lock()

    def is_replay(self, digest: bytes, signed_at: UnixTime, now: UnixTime) -> bool:
        """Record the digest durably, and return whether it was recorded before."""
        key, oldest = _ADMIN + digest, now - 2 * MAX_ADMIN_AGE
        with self._lock:  # if two equal requests come at the same time, one is the replay
            if self._state.get(key) is not None:
                return True
            recorded = self._state.scan(_ADMIN, _AFTER_ADMIN)
            expired = [other for other, packed in recorded if _TIME.unpack(packed)[0] < oldest]
            self._state.write({key: _TIME.pack(signed_at)}, expired)
        return False


class SeenEvidence:
    """Digests of reported equivocations, in memory; cleared when there are ``MAX_SEEN_EVIDENCE``."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, digest: bytes) -> bool:
        """Record the digest, and return whether it was unknown."""
        if digest in self._seen:
            return False
        if len(self._seen) >= MAX_SEEN_EVIDENCE:
            self._seen.clear()
        self._seen.add(digest)
        return True
