"""Signed handovers of hubs that exist only as keys (RESOLUTIONS P9)."""

from __future__ import annotations

import dataclasses
from functools import cache

from veen_core import handover, hub_log, stream
from veen_core.handover import Handover
from veen_core.hub_identity import new_identity
from veen_core.ids import HubId, HubPk, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog import note
from veen_core.tlog.note import Note
from veen_core.tlog.tree_head import TreeHead
from veen_overlays.control.records import HandedOver
from veen_overlays.identifiers import RealmId

BORN = UnixTime(1_600_000_000)


def hub_of(key: SigningKey) -> HubId:
    return stream.hub_id(HubPk(key.public))


@cache
def key_of(number: int) -> SigningKey:
    return SigningKey(SigningSeed(bytes([number + 1]) * 32))


@cache
def handed_over(realm: RealmId, old: int, new: int, hub_ts: int) -> HandedOver:
    """The record of the handover from hub ``old`` to hub ``new``, which ``key_of`` numbers."""
    key = key_of(old)
    origin = hub_log.origin_of(hub_of(key))
    text = TreeHead(origin, 1, bytes(32)).text
    unsigned = Handover(
        old_hub=hub_of(key),
        new_hub=hub_of(key_of(new)),
        hub_ts=UnixTime(hub_ts),
        checkpoint=Note(text, (note.sign_note(key, origin, text),)).encode(),
        attachments=0,
        attachments_hash=handover.attachments_hash(()),
        url="",
        sig=handover.UNSIGNED,
    )
    signed = dataclasses.replace(unsigned, sig=key.sign(unsigned.digest))
    identity = new_identity(key, BORN)
    return HandedOver(realm_id=realm, identity=identity.encode(), handover=signed.encode())
