"""Logs of discovery records by a few signers, and what they mean according to a plain interpreter.

The interpreter keeps the whole log as a list and decides everything by looking through it. It shares no code
with the overlay but the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from veen_core import cbor
from veen_core.errors import VeenError
from veen_core.hashing import H, Ht, u64be
from veen_core.hub_identity import HubIdentity, new_identity, rotate, sign_identity, verify_successor
from veen_core.ids import ClientId, HubPk, ProfileId, SchemaId, StreamId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.discovery import records as disc
from veen_overlays.fold.event import Message
from veen_overlays.recorder.records import KeyContinuity, sign_continuity
from veen_overlays.schema.record import Record, Undecodable, decode_record

KEYS = tuple(SigningKey(SigningSeed(bytes([n + 1]) * 32)) for n in range(5))
"""Keys 0 and 1 are first keys of hubs, key 2 is the second key of hub 1, keys 3 and 4 are clients."""
ROTATED_AT = 50
FIRST = tuple(new_identity(key, UnixTime(1)) for key in KEYS[:2])
SECOND = rotate(FIRST[1], KEYS[1], HubPk(KEYS[2].public), UnixTime(ROTATED_AT), 10)
FORKED = rotate(FIRST[1], KEYS[1], HubPk(KEYS[3].public), UnixTime(ROTATED_AT + 1), 10)
NAMES = ("shop", "shop.eu", "shop.us", "mint", "")
WORDS = ("eu", "us", "beta")


def published(identity: HubIdentity, key: SigningKey) -> disc.HubKeys:
    return disc.HubKeys(hub_id=identity.hub_id, identity=identity.encode(), sig=sign_identity(key, identity))


IDENTITIES = (
    published(FIRST[0], KEYS[0]),
    published(FIRST[1], KEYS[1]),
    published(SECOND, KEYS[2]),
    published(FORKED, KEYS[3]),
)
ids = st.integers(0, 3).map(lambda n: bytes([n]) * 32)
words = st.lists(st.sampled_from(WORDS), max_size=2).map(tuple)
lives = {"ttl_sec": st.integers(0, 60), "expires_at": st.none() | st.integers(0, 120).map(UnixTime)}
methods = st.lists(st.sampled_from(("pay", "quote")), max_size=2).map(tuple)
hub_ids = st.sampled_from([each.hub_id for each in FIRST])
hubs = st.builds(
    disc.HubAdvertise,
    hub_id=hub_ids,
    hub_pk=st.sampled_from([HubPk(key.public) for key in KEYS]),
    profile_id=st.just(ProfileId(bytes(32))),
    region=st.sampled_from(WORDS),
    tags=words,
    endpoints=st.just((disc.Endpoint(kind="https", url="https://hub.example"),)),
    overlays=st.lists(ids.map(disc.OverlayId), max_size=2).map(tuple),
    version=st.just("1"),
    **lives,
)
overlays = st.builds(
    disc.OverlayAdvertise,
    overlay_id=ids.map(disc.OverlayId),
    name=st.sampled_from(NAMES),
    version=st.just("1"),
    schemas=st.lists(ids.map(SchemaId), max_size=2).map(tuple),
    tags=words,
    **lives,
)
services = st.builds(
    disc.ServiceAdvertise,
    service_id=ids.map(disc.ServiceId),
    name=st.sampled_from(NAMES),
    overlay_id=ids.map(disc.OverlayId),
    methods=methods,
    stream_ids=st.just((StreamId(bytes(32)),)),
    regions=words,
    required_caps=st.just(("write",)),
    tags=words,
    **lives,
)
retired = st.one_of(
    hub_ids.map(lambda id_: disc.HubRetire(hub_id=id_)),
    ids.map(lambda id_: disc.OverlayRetire(overlay_id=disc.OverlayId(id_), reason="moved")),
    ids.map(lambda id_: disc.ServiceRetire(service_id=disc.ServiceId(id_))),
)
named = st.builds(
    disc.Publishers,
    kind=st.sampled_from(("overlay", "service")),
    id=ids.map(disc.DescribedId),
    publishers=st.lists(st.sampled_from([ClientId(key.public) for key in KEYS]), max_size=2).map(
        lambda keys: tuple(sorted(set(keys)))
    ),
)
linked = st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).map(
    lambda pair: sign_continuity(pair[0], ClientId(pair[1].public))
)
events = st.one_of(hubs, overlays, services, services, retired, named, linked, st.sampled_from(IDENTITIES))
bodies = events.map(lambda record: (bytes(record.SCHEMA), record.encode()))
broken = st.tuples(bodies, st.integers(0, 40)).map(lambda each: (each[0][0], each[0][1][: each[1]]))


def message(seq: int, schema: bytes, body: bytes, signer: bytes | None, hub_ts: int) -> Message:
    return Message(seq, H(b"disc" + u64be(seq)), schema, body, None, signer, hub_ts)


def said(seq: int, record: Record, key: SigningKey, hub_ts: int | None = None) -> Message:
    """A record in a message of this key."""
    time = 10 * seq if hub_ts is None else hub_ts
    return message(seq, bytes(record.SCHEMA), record.encode(), bytes(key.public), time)


signers = st.sampled_from([bytes(key.public) for key in KEYS] * 3 + [None])
logs = st.lists(st.tuples(bodies | broken, signers), max_size=30).map(
    lambda drawn: [
        message(n, schema, body, signer, 4 * n) for n, ((schema, body), signer) in enumerate(drawn, start=1)
    ]
)
filters: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "hub": st.fixed_dictionaries(
        {}, optional={"region": st.sampled_from(WORDS), "tags_any": words.map(list), "overlay_id": ids}
    ),
    "service": st.fixed_dictionaries(
        {},
        optional={
            "name_prefix": st.sampled_from(("", "s", "shop", "shop.", "x")),
            "method": st.sampled_from(("pay", "quote", "none")),
            "overlay_id": ids,
            "region": st.sampled_from(WORDS),
            "tags_any": words.map(list),
        },
    ),
    "overlay": st.fixed_dictionaries(
        {},
        optional={
            "name_prefix": st.sampled_from(("", "shop", "m")),
            "schema": ids,
            "tags_any": words.map(list),
        },
    ),
}


class Plain:
    """The meaning of a log, found by looking through all of it for every question."""

    def __init__(self, log: Sequence[Message]) -> None:
        shapes: dict[bytes, tuple[type[Record], ...]] = {
            bytes(shape.SCHEMA): (shape,)
            for shape in (
                *disc.ADVERTISE.values(),
                *disc.RETIRE.values(),
                disc.Publishers,
                disc.HubKeys,
                KeyContinuity,
            )
        }
        self.said: list[tuple[Message, Record]] = []
        self.broken = 0
        seen = set()
        for each in log:
            copy = each.origin, each.schema, each.body
            if copy in seen:
                continue
            seen.add(copy)
            record = decode_record(shapes[each.schema], each.body)
            if isinstance(record, Undecodable):
                self.broken += 1
            else:
                self.said.append((each, record))

    def voices(self, signer: bytes | None) -> set[bytes]:
        if signer is None:
            return set()
        linked = {
            bytes(r.principal_id)
            for m, r in self.said
            if isinstance(r, KeyContinuity) and bytes(r.client_id) == m.client_id == signer
        }
        return {signer, *linked}

    def identity(self, hub: bytes) -> HubIdentity | None:
        held: HubIdentity | None = None
        for _, record in self.said:
            if isinstance(record, disc.HubKeys) and record.hub_id == hub:
                shown = HubIdentity.decode(record.identity)
                try:
                    if held is not None:
                        verify_successor(held, shown, record.sig)
                    held = shown
                except VeenError:
                    pass
        return held

    def hub_may(self, hub: bytes, signer: bytes | None, at: int) -> bool:
        identity = self.identity(hub)
        if identity is None:
            return any(Ht("veen/hub-id", key) == hub for key in self.voices(signer))
        keys = {bytes(k.hub_pk) for k in identity.hub_keys if k.active_at(UnixTime(at))}
        return bool(keys & self.voices(signer))

    def allowed(self, kind: str, id_: bytes) -> set[bytes]:
        first = next(
            (m.client_id for m, r in self.about(kind, id_) if m.client_id and "advertise" in r.NAME), None
        )
        allowed = self.voices(first)
        for _ in KEYS:
            for m, r in self.said:
                if isinstance(r, disc.Publishers) and (r.kind, r.id) == (kind, id_):
                    lists = [x for y, x in self.said if y.client_id == m.client_id]
                    same = [x for x in lists if isinstance(x, disc.Publishers) and _same(x, r)]
                    if self.voices(m.client_id) & allowed:
                        allowed |= {bytes(key) for key in same[-1].publishers}
        return allowed

    def about(self, kind: str, id_: bytes) -> list[tuple[Message, Record]]:
        field = disc.ID_FIELD[kind]  # type: ignore[index]
        return [(m, r) for m, r in self.said if _describes(r, kind) and getattr(r, field) == id_]

    def in_force(self, kind: str, id_: bytes) -> tuple[Message, Record] | None:
        """The last record whose writer may speak, if no later record of that writer may not."""
        last = {m.client_id: (m, r) for m, r in self.about(kind, id_)}
        allowed = self.allowed(kind, id_) if kind != "hub" else set()

        def may(m: Message) -> bool:
            if kind == "hub":
                return self.hub_may(id_, m.client_id, m.hub_ts)
            return bool(self.voices(m.client_id) & allowed)

        counting = [each for each in last.values() if may(each[0])]
        return max(counting, key=lambda each: each[0].seq, default=None)

    def ids(self, kind: str) -> set[bytes]:
        field = disc.ID_FIELD[kind]  # type: ignore[index]
        return {bytes(getattr(r, field)) for _, r in self.said if _describes(r, kind)}

    def query(self, kind: str, wanted: dict[str, Any], now: int) -> list[Any]:
        """All descriptors that fit, in the order of name and id."""
        found = []
        for id_ in self.ids(kind):
            held = self.in_force(kind, id_)
            if held is None or held[1].NAME.endswith("retire.v1"):
                continue
            record: Any = held[1]
            end = record.expires_at if record.expires_at is not None else held[0].hub_ts + record.ttl_sec
            if end > now and _fits(record, wanted):
                found.append((getattr(record, "name", ""), id_, cbor.decode(record.encode())))
        return [each for _, _, each in sorted(found, key=lambda each: each[:2])]


def _describes(record: Record, kind: str) -> bool:
    return record.NAME in (f"disc.{kind}.advertise.v1", f"disc.{kind}.retire.v1")


def _same(x: disc.Publishers, r: disc.Publishers) -> bool:
    return (x.kind, x.id) == (r.kind, r.id)


def _fits(record: Any, wanted: dict[str, Any]) -> bool:
    regions = getattr(record, "regions", None) or (getattr(record, "region", None),)
    used = getattr(record, "overlays", None) or (getattr(record, "overlay_id", None),)
    tests = {
        "region": regions.__contains__,
        "tags_any": lambda v: any(tag in record.tags for tag in v),
        "overlay_id": used.__contains__,
        "name_prefix": lambda v: record.name[: len(v)] == v,
        "method": lambda v: v in record.methods,
        "schema": lambda v: v in record.schemas,
    }
    return all(tests[key](value) for key, value in wanted.items())
