"""Unwrapping: a fold sees the event inside a wrapped message, under the identity it has at its source.

A bridge in mode wrap sends the original MSG inside ``bridge.import.v1`` (RESOLUTIONS P4, P7). If the
reader's keys open that MSG too, the fold gets its schema and body, and its *origin* as ``parent_id``: the
msg_id of the original, or the parent that the original names. So a wrapped copy has the identity of its
original, and an event counts once however often it was mirrored (ID 12.1, WALBR0 11.4). A resealed copy has
that identity too, unless the original names a parent, which resealing replaces (P4).

The msg_id stays that of the wrapper, since it is the leaf of the log that was read. An overlay that declares
``bridge.import.v1`` itself sees wrappers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from veen_core.ciphertext import Opened
from veen_core.errors import DecodeError, SignatureError
from veen_core.msg import Msg, verify_signature
from veen_overlays.bridge.records import ImportedEvent
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay

MAX_HOPS: Final = 8
"""How many bridges a message may have passed: each puts it into one more wrapper."""

OpenMsg = Callable[[Msg], Opened | None]
"""Opens a MSG with the reader's keys; None if no key fits."""

_WRAPPER: Final = bytes(ImportedEvent.SCHEMA)


def reads_wrappers(overlay: Overlay[Any]) -> bool:
    """Return whether an overlay folds the wrappers themselves, and not the events inside."""
    return _WRAPPER in overlay.shapes


def is_wrapped(message: Message) -> bool:
    """Return whether a message is a wrapper."""
    return message.schema == _WRAPPER


def unwrap(message: Message, open_msg: OpenMsg) -> Message:
    """Return the event inside a wrapper; the wrapper itself if the reader's keys do not open the original.

    A wrapper whose parent_id is not the original's msg_id, or whose original has no valid signature, stays a
    wrapper, which other overlays ignore. So does one whose original is an attachment (P7): a fold is pure and
    fetches nothing.
    """
    inner = message
    for _ in range(MAX_HOPS):
        if not is_wrapped(inner):
            return inner
        if (found := _inside(inner, open_msg)) is None:
            break
        inner = found
    return message


def _inside(message: Message, open_msg: OpenMsg) -> Message | None:
    try:
        wire = ImportedEvent.decode(message.body).origin_msg
        if wire is None:
            return None
        original = Msg.decode(wire)
        verify_signature(original, wire)
    except (DecodeError, SignatureError):
        return None
    if message.parent_id != original.leaf_hash or (opened := open_msg(original)) is None:
        return None
    header = opened.header
    origin = original.leaf_hash if header.parent_id is None else header.parent_id
    return message._replace(
        schema=bytes(header.schema),
        body=opened.body,
        parent_id=bytes(origin),
        client_id=bytes(original.client_id),
    )
