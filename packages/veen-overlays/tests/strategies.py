"""Hypothesis strategies derived from declarations: any record, and logs of any overlay."""

from __future__ import annotations

from functools import cache
from typing import Any

from handovers import BORN, handed_over
from hypothesis import strategies as st

from veen_core import cbor
from veen_core.attached import AttachmentRef
from veen_core.ciphertext import leaf_hash
from veen_core.codec import MapCodec
from veen_core.hashing import U64_MAX, H, u64be
from veen_core.hub_identity import new_identity, sign_identity
from veen_core.ids import (
    AuthRef,
    BundleId,
    ClientId,
    ClientSeq,
    Coid,
    CtHash,
    HubId,
    Label,
    MmrRoot,
    NodeHash,
    ProfileId,
    StreamId,
    UnixTime,
)
from veen_core.keys import SigningKey, SigningSeed
from veen_core.kinds import AnyValue, Bytes, Fixed, Int, Kind, ListOf, Nullable, OneOf, Scalar, Uint
from veen_core.receipt import Receipt
from veen_overlays.bridge import ImportedEvent
from veen_overlays.bridge.records import OriginLeaf
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.identifiers import CtxId, RealmId, WalletId, device_id, wallet_id
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.payment import PaidOperation
from veen_overlays.schema.record import MAX_NESTING, Record

SMALL_POOL = 3
"""Few distinct identifiers and keys, so that events of a log concern the same objects."""


WALLETS = tuple(wallet_id(RealmId(bytes([n]) * 32), CtxId(bytes([n]) * 32), "USD") for n in range(SMALL_POOL))
"""The wallets of all drawn logs; ``wallet.open.v1`` opens the one of its realm and owner."""


def pooled(make: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, SMALL_POOL - 1).map(make)


def nested(depth: int) -> Any:
    return {"in": nested(depth - 1)} if depth else 0


def free_values() -> st.SearchStrategy[Any]:
    """Free values: shallow ones of all kinds, and some as deep as a record may contain."""
    leaves = st.none() | st.booleans() | st.integers(-(2**64), U64_MAX) | st.binary() | st.text()
    shallow = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )
    return shallow | st.integers(1, MAX_NESTING - 1).map(nested)


TIMES = st.sampled_from((0, 1, 86_399, 86_400, 90_000, 1_700_000_000, U64_MAX)) | st.integers(0, U64_MAX)


def of_kind(name: str, kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Uint() if name in ("ts", "created_at", "updated_at"):
            return TIMES
        case Uint():
            return st.integers(0, 300) | st.integers(0, U64_MAX)
        case Int():
            return st.integers(-300, 300) | st.integers(-(2**64), U64_MAX)
        case Bytes():
            return pooled(lambda n: b"k" * n) | st.binary(max_size=100)
        case Fixed(type=type_) if type_ is WalletId:
            return st.sampled_from(WALLETS)
        case Fixed(type=type_) if type_ is AccountId:
            return st.sampled_from(WALLETS).map(AccountId)
        case Fixed(type=type_, size=size):
            return pooled(lambda n: type_(bytes([n]) * size))
        case Scalar(type=type_) if type_ is str:
            return st.sampled_from(("a", "b", "USD")) | st.text(max_size=70)
        case Scalar():
            return st.booleans()
        case OneOf(allowed=allowed):
            return st.sampled_from(allowed)
        case _:
            return composite(name, kind)


def composite(name: str, kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case ListOf(kind=inner):
            return st.lists(of_kind(name, inner), max_size=3).map(tuple)
        case Nullable(kind=inner):
            return st.none() | of_kind(name, inner)
        case AnyValue():
            return free_values()
        case MapCodec():
            return values_of(kind).map(lambda values: kind.build(**values))
    raise AssertionError(f"no strategy for {kind}")


def values_of(codec: Any) -> st.SearchStrategy[dict[str, Any]]:
    required = {f.name: of_kind(f.name, f.kind) for f in codec.fields if not f.optional}
    optional = {f.name: of_kind(f.name, f.kind) for f in codec.fields if f.optional}
    return st.fixed_dictionaries(required, optional=optional)


@cache
def records(shape: type[Record]) -> st.SearchStrategy[Record]:
    """Any record of a shape that obeys its rules."""
    adjust = ADJUST.get(shape.NAME, lambda values: values)
    built = values_of(shape.codec).map(lambda values: shape(**adjust(values)))
    return built.filter(lambda record: record.broken_rule() is None)


def _open_wallet(values: dict[str, Any]) -> dict[str, Any]:
    """A wallet, mostly one that other events of the log name."""
    currency = values["currency"] if values["currency"] in ("a", "b") else "USD"
    realm, ctx = values["realm_id"], CtxId(values["realm_id"])
    wallet = wallet_id(realm, ctx, currency)
    return values | {"ctx_id": ctx, "currency": currency, "wallet_id": wallet}


def _device(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"device_id": device_id(values["device_pk"])}


def _handle(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"handle": "@user" if len(values["handle"]) % 2 else "ann@example.com"}


def _imported_event(values: dict[str, Any]) -> dict[str, Any]:
    """An event of a source log in which any two positions may follow each other."""
    seq = 1 + values["source_stream_seq"] % 6
    label = values["source_label"]
    original = OriginLeaf(
        profile_id=ProfileId(bytes(32)),
        ct_hash=CtHash(H(u64be(seq))),
        client_id=ClientId(bytes(32)),
        client_seq=ClientSeq(seq),
    )
    leaf = leaf_hash(label, original.profile_id, original.ct_hash, original.client_id, original.client_seq)
    receipt = Receipt(
        label=label, stream_seq=seq, leaf_hash=leaf, mmr_root=MmrRoot(H(leaf)), hub_ts=UnixTime(0)
    )
    given = {**values, "source_stream_seq": seq, "origin_receipt": receipt.encode()}
    given.pop("origin_msg", None)
    if "origin_leaf" in given:
        given["origin_leaf"] = original
    return given


def _enveloped_event(values: dict[str, Any]) -> dict[str, Any]:
    drawn = {
        "bundle_id": BundleId(bytes(32)),
        "source_hub_id": HubId(bytes(32)),
        "source_label": Label(bytes(32)),
        "source_stream_seq": len(values["body"]),
        "import_time": UnixTime(1),
        "bridge_id": ClientId(bytes(32)),
    }
    event = ImportedEvent(**_imported_event(drawn))
    ref = AttachmentRef(coid=Coid(H(values["body"])), size=len(values["body"]))
    return values | {"schema": ImportedEvent.SCHEMA, "body": event.encode(), "attachments": (ref,)}


def _bundle(values: dict[str, Any]) -> dict[str, Any]:
    first, events = 1 + values["from_seq"] % 9, values["events"] % 5
    peaks = tuple(NodeHash(H(u64be(n))) for n in range((first - 1).bit_count()))
    return values | {"from_seq": first, "events": events, "to_seq": first + events - 1, "peaks_before": peaks}


def _handed_over(values: dict[str, Any]) -> dict[str, Any]:
    old, new = len(values["identity"]) % SMALL_POOL, len(values["handover"]) % SMALL_POOL
    made = handed_over(values["realm_id"], old, new + SMALL_POOL, BORN + new)
    return {"realm_id": made.realm_id, "identity": made.identity, "handover": made.handover}


def _recovery_policy(values: dict[str, Any]) -> dict[str, Any]:
    """Guardians other than the target, and a threshold that they can reach."""
    target = values["target_identity"]
    others = {*values["guardians"], IdentityId(bytes([SMALL_POOL]) * 32)} - {target}
    given = {**values, "guardians": tuple(sorted(others)), "threshold": 1 + values["threshold"] % len(others)}
    given.pop("executors", None)
    return given


def _with_map(name: str) -> Any:
    return lambda values: values | ({name: {"k": values[name]}} if name in values else {})


def _publishers(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"publishers": tuple(sorted(set(values["publishers"])))}


def _hub_keys(values: dict[str, Any]) -> dict[str, Any]:
    """The record of a hub whose only key is drawn from a small pool."""
    key = SigningKey(SigningSeed(bytes([len(values["identity"]) % SMALL_POOL]) * 32))
    identity = new_identity(key, UnixTime(1))
    return {"hub_id": identity.hub_id, "identity": identity.encode(), "sig": sign_identity(key, identity)}


def _grant(values: dict[str, Any]) -> dict[str, Any]:
    """A grant with a set of streams and a rate within its bounds."""
    streams = tuple(sorted({StreamId(bytes(32)), *values["allowed_stream_ids"]}))
    bounded = {name: values[name] % 1_000 for name in ("maximum_rate_per_second",) if name in values}
    if bounded and "maximum_burst" in values:
        bounded["maximum_burst"] = values["maximum_burst"] % 1_000
    rest = {name: value for name, value in values.items() if name != "maximum_burst"}
    return rest | bounded | {"allowed_stream_ids": streams}


def _domain(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"authorities": tuple(sorted(set(values["authorities"])))}


def _execution(values: dict[str, Any]) -> dict[str, Any]:
    """A delegated execution, often of a payment, with a chain that names something."""
    chain = values["delegation_chain"] or (AuthRef(bytes(32)),)
    pay = PaidOperation(
        operation_type="a",
        operation_args=values["operation_body"],
        payer_account=AccountId(WALLETS[0]),
        payee_account=AccountId(WALLETS[1]),
        amount=len(chain),
    )
    embedded = {"operation_schema": pay.SCHEMA, "operation_body": cbor.decode(pay.encode())}
    return values | {"delegation_chain": chain} | (embedded if len(chain) > 1 else {})


ADJUST: dict[str, Any] = {
    "disc.publishers.v1": _publishers,
    "disc.hub.identity.v1": _hub_keys,
    "access.grant.v1": _grant,
    "operation.domain.v1": _domain,
    "delegated.execution.v1": _execution,
    "bridge.import.v1": _imported_event,
    "veen.attached.v1": _enveloped_event,
    "bridge.exported.v1": _bundle,
    "bridge.imported.v1": _bundle,
    "veen.fed.handover.v1": _handed_over,
    "wallet.open.v1": _open_wallet,
    "wallet.transfer.v1": _with_map("metadata"),
    "id.recovery.policy.v1": _recovery_policy,
    "id.device.v1": _device,
    "id.handlemap.v1": _handle,
    "id.principal.v1": _with_map("info"),
    "id.ctx.profile.v1": _with_map("prefs"),
    "id.org.profile.v1": _with_map("metadata"),
    "id.external.v1": _with_map("attributes"),
}
"""For records whose rules connect fields: how to make drawn values obey them."""


def messages_of(drawn: list[tuple[bytes, bytes]]) -> list[Message]:
    """A log of three writers, two messages a second."""
    return [
        Message(n, H(u64be(n)), schema, body, None, bytes([n % 3]) * 32, n // 2)
        for n, (schema, body) in enumerate(drawn, start=1)
    ]


def logs(overlay: Overlay[Any], max_size: int = 24) -> st.SearchStrategy[list[Message]]:
    """A log in stream order: records of the overlay, broken bodies, and records of another overlay."""
    return _logs(overlay.schemas, max_size)


@cache  # making a strategy costs more than drawing from it
def _logs(schemas: tuple[type[Record], ...], max_size: int) -> st.SearchStrategy[list[Message]]:
    good = [records(shape).map(lambda r: (bytes(r.SCHEMA), r.encode())) for shape in schemas]
    ids = sorted({bytes(shape.SCHEMA) for shape in schemas})
    garbage = st.tuples(st.sampled_from(ids), st.binary(max_size=20))
    foreign = st.tuples(st.just(H(b"nobody's")), st.binary(max_size=5))
    pairs = st.one_of(*good, *good, *good, garbage, foreign)
    return st.lists(pairs, max_size=max_size).map(messages_of)


def lifted(overlay: Overlay[Any], log: list[Message]) -> list[Summary[Any]]:
    """One summary per distinct event, by the definition."""
    seen = MemorySeenKeys()
    events = (overlay.distinct(message, seen) for message in log)
    return [overlay.summarise(event) for event in events if event is not None]
