"""Random records of every overlay, derived from their declarations; few names, so that events interact."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from veen_core.codec import MapCodec
from veen_core.hashing import H
from veen_core.ids import SchemaId
from veen_core.kinds import Bytes, Fixed, Int, Kind, ListOf, Nullable, OneOf, Scalar, Uint
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, RealmId, WalletId, device_id, wallet_id
from veen_overlays.schema.record import Record

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


def record_of(rng: random.Random, shape: type[Record]) -> Record:
    """Return a valid record."""
    while True:
        values = values_of(rng, shape.codec)
        if shape.NAME == "wallet.open.v1":
            realm = RealmId(bytes([rng.randrange(3)]) * 32)
            owner = CtxId(bytes(realm))
            values |= {"realm_id": realm, "ctx_id": owner, "currency": "USD"}
            values |= {"wallet_id": wallet_id(realm, owner, "USD")}
        if shape.NAME == "id.device.v1":
            values |= {"device_id": device_id(values["device_pk"])}
        if shape.NAME == "id.handlemap.v1":
            values |= {"handle": rng.choice(("@user", "ann@example.com"))}
        record = shape(**values)
        if record.broken_rule() is None:
            return record


def bodies(overlay: Overlay[Any], count: int, seed: int = 1) -> Iterator[tuple[SchemaId, bytes]]:
    """Return the bodies of a log: the overlay's records, sometimes garbage or another overlay's record."""
    rng = random.Random(f"{overlay.name}{seed}")
    for _ in range(count):
        chance = rng.random()
        if chance < 0.05:
            yield SchemaId(H(b"nobody's")), b"x"
        elif chance < 0.1:
            yield overlay.schema_ids[0], rng.randbytes(7)
        else:
            record = record_of(rng, rng.choice(overlay.schemas))
            yield record.SCHEMA, record.encode()
