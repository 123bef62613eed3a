"""Vectors of the handover record: the last statement of a hub that names its successor (P9)."""

from __future__ import annotations

import dataclasses
from typing import Any

from veen_core import handover, status, stream
from veen_core.errors import DecodeError, IdentityError, SignatureError, VerificationError
from veen_core.handover import Handover
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Coid, HubPk, UnixTime
from veen_core.keys import SigningKey
from veen_core.tlog import note
from veen_core.tlog.note import Note
from veen_core.tlog.tree_head import TreeHead

from . import cast
from .api import envelope
from .case import Bad, Context, Good, Object, unhex
from .forks import REAL, _note
from .hub_log import ORIGIN

NEW_HUB = stream.hub_id(HubPk(cast.OTHER_HUB.public))
COIDS = sorted(Coid(H(bytes([number]))) for number in range(3))
AFTER_ROTATION = UnixTime(cast.ROTATED + cast.WINDOW_SEC + 1)


def _handover(key: SigningKey = cast.HUB, **changes: Any) -> Handover:
    record = Handover(
        old_hub=cast.HUB_ID,
        new_hub=NEW_HUB,
        hub_ts=cast.BORN,
        checkpoint=_note(REAL, 4),
        attachments=len(COIDS),
        attachments_hash=handover.attachments_hash(COIDS),
        url="https://successor.example:8080",
        sig=handover.UNSIGNED,
    )
    record = dataclasses.replace(record, **changes)
    return dataclasses.replace(record, sig=key.sign(record.digest))


def judge(wire: bytes, context: Context) -> Any:
    record = Handover.decode(wire)
    signed = handover.verify_handover(record, HubIdentity.decode(unhex(context, "identity")))
    return {
        "old_hub": record.old_hub.hex(),
        "new_hub": record.new_hub.hex(),
        "hub_ts": record.hub_ts,
        "size": signed.head.size,
        "root": signed.head.root.hex(),
        "attachments": record.attachments,
        "attachments_hash": record.attachments_hash.hex(),
        "url": record.url,
    }


FIRST = {"identity": cast.identity().encode().hex()}
ROTATED = {"identity": cast.rotated_identity().encode().hex()}
GOOD = _handover()
OTHER_ORIGIN = TreeHead("other.example/log", 4, REAL.roots[4]).text
FOREIGN_LOG = Note(OTHER_ORIGIN, (note.sign_note(cast.HUB, "other.example/log", OTHER_ORIGIN),)).encode()


def bad(name: str, record: Handover, error: type[Any], match: str, context: Context = FIRST) -> Bad:
    return Bad(name, record.encode(), error, match, context)


OBJECTS = (
    Object(
        name="handover",
        judge=judge,
        wire=Handover,
        good=(
            Good("first_key", GOOD.encode(), FIRST),
            Good("newer_key", _handover(cast.NEXT_HUB, hub_ts=AFTER_ROTATION).encode(), ROTATED),
            Good("without_address", _handover(url="").encode(), FIRST),
            Good(
                "without_attachments",
                _handover(attachments=0, attachments_hash=handover.attachments_hash(())).encode(),
                FIRST,
            ),
        ),
        bad=(
            bad("foreign_key", _handover(cast.OTHER_HUB), SignatureError, "no key of the old hub"),
            bad(
                "key_before_its_time",
                _handover(cast.NEXT_HUB),
                SignatureError,
                "no key of the old hub that is active",
                ROTATED,
            ),
            bad(
                "key_after_its_end",
                _handover(cast.HUB, hub_ts=AFTER_ROTATION),
                SignatureError,
                "no key of the old hub that is active",
                ROTATED,
            ),
            bad(
                "before_the_hub_was_born",
                _handover(hub_ts=UnixTime(cast.BORN - 1)),
                IdentityError,
                "no key of the old hub is active",
            ),
            bad("own_successor", _handover(new_hub=cast.HUB_ID), VerificationError, "its own successor"),
            bad("another_old_hub", _handover(old_hub=NEW_HUB), IdentityError, "the pinned hub is"),
            bad(
                "another_successor",
                dataclasses.replace(GOOD, new_hub=type(NEW_HUB)(H(b"thief"))),
                SignatureError,
                "no key of the old hub",
            ),
            bad("another_address", dataclasses.replace(GOOD, url="http://x"), SignatureError, "no key of"),
            bad(
                "an_earlier_checkpoint",
                dataclasses.replace(GOOD, checkpoint=_note(REAL, 3)),
                SignatureError,
                "no key of",
            ),
            bad(
                "checkpoint_of_another_hub",
                _handover(checkpoint=_note(REAL, 4, cast.OTHER_HUB)),
                SignatureError,
                "no key of the hub signed it",
            ),
            bad("checkpoint_of_another_log", _handover(checkpoint=FOREIGN_LOG), SignatureError, ORIGIN),
            bad("checkpoint_is_no_note", _handover(checkpoint=b"x"), DecodeError, "note"),
            bad("one_attachment_less", dataclasses.replace(GOOD, attachments=2), SignatureError, "no key of"),
        ),
    ),
    envelope(
        "handover_request",
        status.HandoverRequest,
        full=status.HandoverRequest(new_hub=NEW_HUB, url="https://successor.example:8080"),
        without_address=status.HandoverRequest(new_hub=NEW_HUB, url=""),
    ),
)
