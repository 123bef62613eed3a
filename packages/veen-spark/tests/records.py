"""Random records of every overlay, derived from their declarations; few names, so that events interact."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from veen_core import handover, hub_log
from veen_core.attached import AttachmentRef
from veen_core.codec import MapCodec
from veen_core.handover import Handover
from veen_core.hashing import H
from veen_core.hub_identity import new_identity, sign_identity
from veen_core.ids import Coid, HubPk, LeafHash, MmrRoot, NodeHash, SchemaId, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.kinds import Bytes, Fixed, Int, Kind, ListOf, Nullable, OneOf, Scalar, Uint
from veen_core.receipt import Receipt
from veen_core.stream import hub_id
from veen_core.tlog import note
from veen_core.tlog.note import Note
from veen_core.tlog.tree_head import TreeHead
from veen_overlays.bridge import ImportedEvent
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, RealmId, WalletId, device_id, wallet_id
from veen_overlays.operations.operation import IdentityId
from veen_overlays.schema.record import Record

MAX_ATTEMPTS = 1_000
MANY_SCHEMAS = 9
WALLETS = tuple(wallet_id(RealmId(bytes([n]) * 32), CtxId(bytes([n]) * 32), "USD") for n in range(3))


def value_of(rng: random.Random, kind: Kind) -> Any:
    match kind:
        case Uint():
            return rng.choice((0, rng.randrange(300), 1_700_000_000 + rng.randrange(200_000)))
        case Int():
            return rng.randrange(-300, 300)
        case Bytes():
            return b"k" * rng.randrange(4)
        case Fixed(type=type_) if type_ is WalletId:
            return rng.choice(WALLETS)
        case Fixed(type=type_, size=size):
            return type_(bytes([rng.choice((rng.randrange(4), rng.randrange(200)))]) * size)
        case Scalar(type=type_):
            return rng.choice(("a", "b", "USD")) if type_ is str else rng.random() < 0.5
        case OneOf(allowed=allowed):
            return rng.choice(allowed)
        case ListOf(kind=inner):
            return tuple(value_of(rng, inner) for _ in range(rng.randrange(3)))
        case Nullable(kind=inner):
            return rng.choice((None, value_of(rng, inner)))
        case MapCodec():
            return kind.build(**values_of(rng, kind))
    return {"k": rng.randrange(9)}  # free


def values_of(rng: random.Random, codec: Any) -> dict[str, Any]:
    wanted = [f for f in codec.fields if not f.optional or rng.random() < 0.5]
    return {f.name: value_of(rng, f.kind) for f in wanted}


def imported_event(values: dict[str, Any]) -> dict[str, Any]:
    """Give an event a receipt of its own place; the original MSG is left out."""
    seq = StreamSeq(1 + values["source_stream_seq"] % 6)
    leaf = LeafHash(H(b"leaf" + bytes([seq])))
    receipt = Receipt(
        label=values["source_label"],
        stream_seq=seq,
        leaf_hash=leaf,
        mmr_root=MmrRoot(H(leaf)),
        hub_ts=UnixTime(0),
    )
    rest = {name: value for name, value in values.items() if name not in ("origin_msg", "origin_leaf")}
    return rest | {"source_stream_seq": seq, "origin_receipt": receipt.encode()}


def attached_event(rng: random.Random, values: dict[str, Any]) -> dict[str, Any]:
    event = ImportedEvent(**imported_event(values_of(rng, ImportedEvent.codec)))
    ref = AttachmentRef(coid=Coid(H(b"original")), size=8)
    return values | {"schema": ImportedEvent.SCHEMA, "body": event.encode(), "attachments": (ref,)}


def handed_over(values: dict[str, Any]) -> dict[str, Any]:
    """A handover that a hub with one key has signed."""
    key, other = (SigningKey(SigningSeed(bytes([n]) * 32)) for n in (1, 2))
    old, new = (hub_id(HubPk(each.public)) for each in (key, other))
    origin = hub_log.origin_of(old)
    text = TreeHead(origin, 1, bytes(32)).text
    unsigned = Handover(
        old_hub=old,
        new_hub=new,
        hub_ts=UnixTime(2),
        checkpoint=Note(text, (note.sign_note(key, origin, text),)).encode(),
        attachments=0,
        attachments_hash=handover.attachments_hash(()),
        url="",
        sig=handover.UNSIGNED,
    )
    signed = replace(unsigned, sig=key.sign(unsigned.digest))
    identity = new_identity(key, UnixTime(1)).encode()
    return {"realm_id": values["realm_id"], "identity": identity, "handover": signed.encode()}


def hub_keys() -> dict[str, Any]:
    key = SigningKey(SigningSeed(bytes([1]) * 32))
    identity = new_identity(key, UnixTime(1))
    return {"hub_id": identity.hub_id, "identity": identity.encode(), "sig": sign_identity(key, identity)}


def bundle(values: dict[str, Any]) -> dict[str, Any]:
    first, events = 1 + values["from_seq"] % 9, values["events"] % 5
    peaks = tuple(NodeHash(H(bytes([n]))) for n in range((first - 1).bit_count()))
    return values | {"from_seq": first, "events": events, "to_seq": first + events - 1, "peaks_before": peaks}


def open_wallet(rng: random.Random, values: dict[str, Any]) -> dict[str, Any]:
    realm = RealmId(bytes([rng.randrange(3)]) * 32)
    owner = CtxId(bytes(realm))
    opened = {"realm_id": realm, "ctx_id": owner, "currency": "USD"}
    return values | opened | {"wallet_id": wallet_id(realm, owner, "USD")}


def recovery_policy(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"guardians": (IdentityId(bytes([250]) * 32),), "threshold": 1, "executors": None}


ADJUST: dict[str, Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = {
    "wallet.open.v1": open_wallet,
    "id.device.v1": lambda _rng, values: values | {"device_id": device_id(values["device_pk"])},
    "id.handlemap.v1": lambda rng, values: values | {"handle": rng.choice(("@user", "ann@example.com"))},
    "id.recovery.policy.v1": lambda _rng, values: recovery_policy(values),
    "access.grant.v1": lambda _rng, values: values | {"expiry_time": UnixTime(2**40)},
    "veen.fed.handover.v1": lambda _rng, values: handed_over(values),
    "disc.hub.identity.v1": lambda _rng, _values: hub_keys(),
    "disc.publishers.v1": lambda _rng, values: (
        values | {"publishers": tuple(sorted(set(values["publishers"])))}
    ),
    "bridge.import.v1": lambda _rng, values: imported_event(values),
    "veen.attached.v1": attached_event,
    "bridge.exported.v1": lambda _rng, values: bundle(values),
    "bridge.imported.v1": lambda _rng, values: bundle(values),
}
"""For records whose rules connect fields: how to make drawn values obey them."""


def record_of(rng: random.Random, shape: type[Record]) -> Record:
    """Return a valid record."""
    for _attempt in range(MAX_ATTEMPTS):
        values = values_of(rng, shape.codec)
        if (adjust := ADJUST.get(shape.NAME)) is not None:
            values = adjust(rng, values)
        record = shape(**values)
        if record.broken_rule() is None:
            return record
    raise AssertionError(f"{shape.NAME}: drawn values never obey its rules: {record.broken_rule()}")


def bodies(overlay: Overlay[Any], count: int, seed: int = 1) -> Iterator[tuple[SchemaId, bytes]]:
    """Return the bodies of a log: the overlay's records, sometimes garbage or another overlay's record."""
    rng = random.Random(f"{overlay.name}{seed}")
    for n in range(count):
        chance = rng.random()
        if chance < 0.05:
            yield SchemaId(H(b"nobody's")), b"x"
        elif chance < 0.1:
            yield overlay.schema_ids[0], rng.randbytes(7)
        else:
            # An overlay with many records has each of them at least once.
            named = overlay.schemas[n] if MANY_SCHEMAS < len(overlay.schemas) > n else None
            record = record_of(rng, named or rng.choice(overlay.schemas))
            yield record.SCHEMA, record.encode()
