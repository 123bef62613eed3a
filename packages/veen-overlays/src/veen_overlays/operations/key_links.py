"""Key links of a stream: which keys may sign for an identity, from which message on (RESOLUTIONS P10).

A key signs for an identity if it is the identity's own key, or if an *earlier* message of the same stream is
a ``record.continuity.v1`` that both keys have signed. Profiles of spec-3 that name a party in their body
compare the party with the signer of the message by this rule. A message whose signer the reader does not
know counts for no identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST_WRITER, Monoid, StampedValue, map_of
from veen_overlays.operations.frequent_record import Groups
from veen_overlays.recorder.attribution import links
from veen_overlays.recorder.records import KeyContinuity

KeyLinks = Mapping[bytes, StampedValue | None]
"""By ``identity || client_id``: the first message that links the two keys."""

KEY_LINKS: Final[Monoid[KeyLinks]] = map_of(FIRST_WRITER)


def lift_link(event: Event) -> dict[str, Any]:
    """The part ``links`` of a summary, if the event links two keys; an empty summary otherwise."""
    record = event.record
    assert isinstance(record, KeyContinuity)
    if not links(record, event.client_id):
        return {}
    return {"links": {bytes(record.principal_id + record.client_id): (event.stamp(0), b"")}}


def take_link(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:  # noqa: ARG001
    """Accept a link that the client itself has not signed, and add nothing: such a record links no keys."""
    client: bytes = groups[1]
    return client != message.client_id


def with_signer(event: Event) -> bytes:
    """The body of an event and the key that signed it, as one byte string."""
    signer = event.client_id or b""
    return bytes([len(signer)]) + signer + event.body


def split_signer(held: bytes) -> tuple[bytes, bytes]:
    """The inverse of ``with_signer``: the signer and the body; the signer is empty if it is not known."""
    end = 1 + held[0]
    return held[1:end], held[end:]


def signs_for(known: KeyLinks, identity: bytes, client_id: bytes, seq: int) -> bool:
    """Whether message ``seq``, signed by ``client_id``, was sent by this identity."""
    if identity == client_id:
        return True
    link = known.get(identity + client_id)
    return link is not None and link[0][1] < seq
