"""Attribution: whether the identity key that an event names has written the event (SDR0 I3, P10).

An event is attributed if ``principal_id`` is the client_id that signed its MSG, or if an *earlier* entry of
the same log is a ``record.continuity.v1`` in which ``principal_id`` signs that client_id and that the
client_id itself has signed as a MSG. So both keys have agreed to the link. Other events are kept and marked.

Readers that walk a log in order use ``Attribution``; ``actors`` folds the same rule in any tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from veen_core.errors import SignatureError
from veen_overlays.recorder.records import KeyContinuity, RecordEvent, verify_continuity


def links(record: KeyContinuity, client_id: bytes | None) -> bool:
    """Return whether a continuity record in a message of this client_id links the two keys."""
    if client_id is None or record.client_id != client_id:
        return False
    try:
        verify_continuity(record)
    except SignatureError:
        return False
    return True


class Attribution:
    """The key links of one log so far; call ``add`` and ``attributed`` in the order of its entries."""

    __slots__ = ("_links",)

    def __init__(self, known: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """``known``: the links of earlier entries, as ``pairs`` returns them."""
        self._links: set[tuple[bytes, bytes]] = set(known)

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The links so far, sorted: principal_id and the client_id that it signed."""
        return sorted(self._links)

    def add(self, record: KeyContinuity, client_id: bytes | None) -> None:
        """Add the continuity record of the next entry; ``client_id`` has signed the entry's MSG."""
        if links(record, client_id):
            self.add_link(bytes(record.principal_id), bytes(record.client_id))

    def add_link(self, principal: bytes, client: bytes) -> None:
        """Add the link of the next entry, which ``links`` has verified."""
        self._links.add((principal, client))

    def attributed(self, event: RecordEvent, client_id: bytes | None) -> bool:
        """Return whether the event of the next entry was written by the principal that it names."""
        return self.is_linked(bytes(event.principal_id), client_id)

    def is_linked(self, principal: bytes, client_id: bytes | None) -> bool:
        """Return whether a principal is this client_id, or an earlier entry has linked the two keys."""
        return client_id is not None and (
            principal == client_id or (principal, bytes(client_id)) in self._links
        )
