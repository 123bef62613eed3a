"""A hub's policy, kept up to date from its realm's admin streams (spec-2, RESOLUTIONS H6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from memory_log import READER, READER_SECRET, MemoryLog

from veen_core import (
    ClientId,
    Entry,
    HubId,
    Label,
    LogReader,
    MmrConsistency,
    Receipt,
    StreamId,
    StreamSeq,
    mint,
)
from veen_core.cap import CapToken
from veen_core.errors import DivergenceError, OpenError, StateError, VeenError
from veen_core.hashing import H, u64be
from veen_core.ids import AuthRef, Epoch, SchemaId, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import Secrets
from veen_core.utc import format_utc
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import FOREVER_SEC, Level, PolicyView
from veen_overlays.control.records import (
    Authority,
    LabelClass,
    Revocation,
    RevokedId,
    admin_stream,
    label_class_stream,
    revocation_stream,
    schema_stream,
)
from veen_overlays.identifiers import realm_id
from veen_overlays.live import RealmFollower, RealmPolicy
from veen_overlays.summary_tree.store import MemoryStore

REALM = realm_id("plant")
HERE, THERE = HubId(b"\x0a" * 32), HubId(b"\x0b" * 32)
ORDERS, ORDERS_LABEL = StreamId(b"\x01" * 32), Label(b"\x02" * 32)
NOW = UnixTime(1_700_000_000)
PHONE = SigningKey(SigningSeed(b"\x07" * 32))
CLIENT = ClientId(PHONE.public)
ELSEWHERE = Authority(
    realm_id=REALM,
    stream_id=ORDERS,
    primary_hub=THERE,
    replica_hubs=(),
    policy="single-primary",
    ts=NOW,
    ttl=60,
)


@dataclass
class Clock:
    time: UnixTime = NOW

    def now(self) -> UnixTime:
        return self.time


@dataclass(frozen=True)
class Question:
    label: Label = ORDERS_LABEL
    client_id: ClientId = CLIENT
    auth_ref: AuthRef | None = None
    token: CapToken | None = None
    hub_ts: UnixTime = NOW


@dataclass
class Logs:
    """A reader of several labels; ``broken`` makes every read fail, ``unreachable`` those of some labels."""

    logs: dict[Label, MemoryLog] = field(default_factory=dict)
    broken: bool = False
    unreachable: set[Label] = field(default_factory=set)

    def at(self, label: Label) -> MemoryLog:
        if self.broken or label in self.unreachable:
            raise VeenError("unreachable")
        return self.logs.setdefault(label, MemoryLog(label))

    async def head(self, label: Label) -> Receipt | None:
        return await self.at(label).head(label)

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        return await self.at(label).page(label, from_seq, max_items)

    def follow(self, label: Label, from_seq: StreamSeq):  # noqa: ANN201
        return self.at(label).follow(label, from_seq)

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        return await self.at(label).receipt(label, stream_seq)

    async def proof(self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None):  # noqa: ANN201
        return await self.at(label).proof(label, stream_seq, tree_size)

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        return await self.at(label).consistency(label, from_seq, to_seq)

    async def checkpoint(self, label: Label) -> None:
        return await self.at(label).checkpoint(label)  # type: ignore[func-returns-value]


class HubServices(NamedTuple):
    """What a hub provides to its policy."""

    reader: Logs
    label_of: Callable[[StreamId], Label]
    stream_of: Callable[[Label], StreamId | None]
    learn: Callable[[Iterable[StreamId]], Awaitable[None]]
    clock: Clock
    store: Callable[[str], MemoryStore]
    issuers: frozenset[bytes] = frozenset()

    @staticmethod
    def epochs_of(_stream: StreamId) -> None:
        """None: this hub has no epochs."""

    @staticmethod
    async def inherited_from(_stream: StreamId) -> None:
        """None: this hub replaced no hub."""


def label_of(stream: StreamId) -> Label:
    return Label(bytes(reversed(stream)))


def follower(
    logs: Logs, clock: Clock, level: Level = Level.HARDENED, store: MemoryStore | None = None, **more: Any
) -> RealmFollower:
    return RealmFollower(
        REALM,
        HERE,
        level,
        reader=logs,  # type: ignore[arg-type]
        label_of=label_of,
        key=READER,
        store=MemoryStore() if store is None else store,
        clock=clock,
        **more,
    )


def policy_of() -> ViewPolicy:
    view = PolicyView(level=Level.HARDENED, realm=REALM, hub_id=HERE)
    return ViewPolicy(view, {ORDERS_LABEL: ORDERS}.get, max_age_sec=5)


def realm_policy(folder: Path, level: str, refresh_sec: float) -> RealmPolicy:
    """A policy as a hub makes it, with the realm's key in a file."""
    secrets = Secrets(id_sign=SigningSeed(bytes(32)), id_dh=READER_SECRET, created_at=NOW)
    (folder / "key").write_bytes(secrets.encode())
    (folder / "key").chmod(0o600)
    options = {"level": level, "realm": "plant", "key": folder / "key", "max_age_sec": 5, "rates": {}}
    return RealmPolicy(HERE, {**options, "refresh_sec": refresh_sec})


def revoked(target: bytes, kind: str = "client-id") -> Revocation:
    return Revocation(kind=kind, target=RevokedId(target), ts=NOW)  # type: ignore[arg-type]


def test_the_test_reader_implements_cores_protocol() -> None:
    assert isinstance(Logs(), LogReader)


def test_a_view_names_the_streams_of_its_authority_records() -> None:
    async def check() -> None:
        logs, clock = Logs(), Clock()
        logs.at(label_of(admin_stream(REALM))).write(ELSEWHERE)
        assert (await follower(logs, clock).refresh()).named_streams == {ORDERS}
        assert (await follower(logs, clock, Level.CORE).refresh()).named_streams == frozenset()

    asyncio.run(check())


def test_a_policy_teaches_streams_to_the_hub_before_the_view_takes_effect(tmp_path: Path) -> None:
    """Otherwise a replica would not know their labels and would accept messages for them."""
    policy = realm_policy(tmp_path, "federated", refresh_sec=0.001)
    known: dict[Label, StreamId] = {}
    before: list[str | None] = []

    async def learn(streams: Iterable[StreamId]) -> None:
        before.append(policy.stale(NOW))
        known.update(dict.fromkeys([ORDERS_LABEL], next(iter(streams))))

    async def check() -> None:
        logs = Logs()
        logs.at(label_of(admin_stream(REALM))).write(ELSEWHERE)
        around = HubServices(logs, label_of, known.get, learn, Clock(), lambda _name: MemoryStore())
        task = asyncio.create_task(policy.follow(around))  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            while policy.stale(NOW) is not None:
                await asyncio.sleep(0)
        assert policy.not_primary(Question()) is not None
        logs.broken = True
        with pytest.raises(VeenError, match="unreachable"):
            await task

    asyncio.run(check())
    assert before == ["the authority stream was never folded"]


def test_a_successor_without_the_records_of_the_hub_that_it_replaced_has_no_view() -> None:
    """RESOLUTIONS P9: its labels start at 1, and a view without the old revocations would admit anyone."""

    asked: list[StreamId] = []

    async def inherited_from(stream: StreamId) -> HubId | None:
        asked.append(stream)
        return THERE if stream == revocation_stream(REALM) else None

    async def check() -> None:
        logs, clock = Logs(), Clock()
        realm = follower(logs, clock, inherited_from=inherited_from)
        with pytest.raises(StateError, match="this hub has no message of the revocation stream") as refusal:
            await realm.refresh()
        assert THERE.hex() in str(refusal.value)
        logs.at(label_of(revocation_stream(REALM))).write(revoked(CLIENT))
        for _ in range(2):
            assert (await realm.refresh()).revoked(CLIENT, None, None, NOW) is not None

    asyncio.run(check())
    assert asked == [admin_stream(REALM), revocation_stream(REALM)]


def test_a_revoked_client_is_refused_after_the_next_refresh() -> None:
    async def check() -> None:
        logs, clock = Logs(), Clock()
        realm = follower(logs, clock)
        policy = policy_of()
        policy.view = await realm.refresh()
        assert policy.revoked(Question()) is None
        logs.at(label_of(revocation_stream(REALM))).write(revoked(CLIENT))
        policy.view = await realm.refresh()
        assert policy.revoked(Question()) == f"client-id revoked at {format_utc(NOW)}"

    asyncio.run(check())


def test_a_revoked_token_and_a_foreign_primary_are_refused() -> None:
    async def check() -> None:
        logs, clock = Logs(), Clock()
        token = mint(PHONE, CLIENT, [ORDERS], 60)
        logs.at(label_of(revocation_stream(REALM))).write(revoked(token.token_hash, "cap-token"))
        logs.at(label_of(admin_stream(REALM))).write(
            Authority(
                realm_id=REALM,
                stream_id=ORDERS,
                primary_hub=THERE,
                replica_hubs=(HERE,),
                policy="single-primary",
                ts=NOW,
                ttl=60,
            )
        )
        realm = follower(logs, clock)
        policy = policy_of()
        policy.view = await realm.refresh()
        assert "cap-token" in (policy.revoked(Question(auth_ref=token.auth_ref, token=token)) or "")
        assert THERE.hex() in (policy.not_primary(Question()) or "")
        assert policy.not_primary(Question(label=Label(b"\x09" * 32))) is None

    asyncio.run(check())


def test_a_view_that_cannot_be_renewed_becomes_stale_and_recovers() -> None:
    async def check() -> None:
        logs, clock = Logs(), Clock()
        realm = follower(logs, clock)
        policy = policy_of()
        assert "never folded" in (policy.stale(clock.time) or "")
        policy.view = await realm.refresh()
        assert policy.stale(clock.time) is None
        logs.broken = True
        clock.time = UnixTime(NOW + 6)
        with pytest.raises(VeenError, match="unreachable"):
            await realm.refresh()
        assert "last read to its end 6 s ago" in (policy.stale(clock.time) or "")
        assert policy.describe()["lag_sec"] == "6"
        logs.broken = False
        policy.view = await realm.refresh()
        assert policy.stale(clock.time) is None

    asyncio.run(check())


OTHER_READER = DhKey(DhSecret(b"\x66" * 32))


def test_a_key_that_opens_no_message_of_a_stream_gives_no_view() -> None:
    """An unreadable stream may revoke anyone, so the view fails closed until the key opens one record."""

    async def check() -> None:
        logs, clock = Logs(), Clock()
        log = logs.at(label_of(revocation_stream(REALM)))
        log.append(log.seal(revoked(b"\x01" * 32), reader=OTHER_READER))
        realm = follower(logs, clock)
        for _ in range(2):
            with pytest.raises(OpenError, match="opens no message of the revocation stream"):
                await realm.refresh()
        log.write(revoked(CLIENT))
        view = await realm.refresh()
        assert view.revoked(CLIENT, None, None, NOW) is not None

    asyncio.run(check())


@pytest.mark.parametrize("case", ["unreachable", "sealed to another key", "rolled back"])
def test_a_schema_registry_that_cannot_be_read_keeps_no_message_out(case: str) -> None:
    """spec-2 7.2: nothing is admitted or refused by the registry, so a hub does not depend on it."""

    async def check() -> None:
        logs, clock, store = Logs(), Clock(), MemoryStore()
        log = logs.at(label_of(schema_stream(REALM)))
        log.append(log.seal(revoked(CLIENT), reader=OTHER_READER if case.startswith("sealed") else READER))
        await follower(logs, clock, Level.META, store).refresh()
        if case == "unreachable":
            logs.unreachable.add(log.label)
        elif case == "rolled back":
            logs.logs[log.label] = MemoryLog(log.label)
        clock.time = UnixTime(NOW + 60)
        view = await follower(logs, clock, Level.META, store).refresh()
        assert view.stale(clock.time, 5) is None
        assert view.lag_sec(clock.time) == 0

    asyncio.run(check())


def test_an_invalid_record_neither_stops_a_fold_nor_undoes_others() -> None:
    """Core §11.1: malformed, foreign or sealed to another key; the other records still count."""

    @dataclass(frozen=True)
    class Malformed:
        schema_id: SchemaId = Revocation.SCHEMA

        def encode(self) -> bytes:
            return b"\xa1\x64kind\x01"

    async def check() -> None:
        logs, clock = Logs(), Clock()
        log = logs.at(label_of(revocation_stream(REALM)))
        log.append(log.seal(Malformed()))  # type: ignore[arg-type]
        realm = follower(logs, clock)
        assert (await realm.refresh()).revoked(CLIENT, None, None, NOW) is None
        log.write(revoked(CLIENT), ELSEWHERE)
        log.append(log.seal(Malformed()))  # type: ignore[arg-type]
        log.append(log.seal(revoked(b"\x01" * 32), reader=OTHER_READER))
        view = await realm.refresh()
        assert view.revoked(CLIENT, None, None, NOW) is not None
        assert view.authority(ORDERS, NOW) is None, "a record counts on its own stream only"

    asyncio.run(check())


@dataclass
class Turning:
    """The labels of an admin stream at a hub with epochs; the window is one epoch wide."""

    stream: StreamId
    now: int = 1
    since: Epoch = field(default=Epoch(0))

    def label_of(self, epoch: Epoch) -> Label:
        return Label(H(self.stream + u64be(epoch)))

    def window(self) -> range:
        return range(self.now, self.now + 1)

    async def confirmed(self) -> range:
        return self.window()

    async def forget(self, label: Label) -> None: ...


def test_a_class_never_prunes_admin_labels_of_any_epoch() -> None:
    """LCLASS0 6.2: a hub that lost what its view is folded from could not start."""

    async def check() -> None:
        logs, streams = Logs(), {}

        def epochs_of(stream: StreamId) -> Turning:
            return streams.setdefault(stream, Turning(stream))

        realm = RealmFollower(
            REALM,
            HERE,
            Level.META,
            reader=logs,  # type: ignore[arg-type]
            label_of=label_of,
            key=READER,
            store=MemoryStore(),
            clock=Clock(),
            epochs_of=epochs_of,
        )
        classes = epochs_of(label_class_stream(REALM))
        revocations = epochs_of(revocation_stream(REALM))
        old = revocations.label_of(Epoch(1))
        logs.at(old).write(revoked(CLIENT))
        own = [old, revocations.label_of(Epoch(9)), classes.label_of(Epoch(1)), classes.label_of(Epoch(9))]
        for label in (*own, ORDERS_LABEL):
            logs.at(classes.label_of(Epoch(1))).write(LabelClass(label=label, class_="log", retention_hint=0))
        await realm.refresh()
        for each in streams.values():
            each.now = 9
        view = await realm.refresh()
        assert view.revocations is not None
        assert view.revocations.label == old
        kept = view.retention()
        assert kept.pop(ORDERS_LABEL) == 0
        assert set(own) <= set(kept)
        assert set(kept.values()) == {FOREVER_SEC}

    asyncio.run(check())


def test_a_policy_with_a_stale_view_prunes_nothing(tmp_path: Path) -> None:
    policy, clock, logs = realm_policy(tmp_path, "meta", refresh_sec=60), Clock(), Logs()
    logs.at(label_of(label_class_stream(REALM))).write(
        LabelClass(label=ORDERS_LABEL, class_="log", retention_hint=0)
    )

    async def learn(_streams: Iterable[StreamId]) -> None: ...

    async def check() -> None:
        assert policy.retention() == {}
        around = HubServices(logs, label_of, {}.get, learn, clock, lambda _name: MemoryStore())
        task = asyncio.create_task(policy.follow(around))  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            while policy.stale(NOW) is not None:
                await asyncio.sleep(0)
        assert policy.retention()[ORDERS_LABEL] == 0
        clock.time = UnixTime(NOW + 6)
        assert set(policy.retention().values()) == {FOREVER_SEC}
        task.cancel()

    asyncio.run(check())


def test_a_level_follows_the_streams_it_needs() -> None:
    async def check() -> None:
        logs = Logs()
        await follower(logs, Clock(), Level.META).refresh()
        streams = (admin_stream, revocation_stream, label_class_stream)
        assert set(logs.logs) == {label_of(stream(REALM)) for stream in streams}
        core = Logs()
        await follower(core, Clock(), Level.CORE).refresh()
        assert core.logs == {}

    asyncio.run(check())


def test_a_restarted_follower_continues_from_its_store() -> None:
    async def check() -> None:
        logs, clock, store = Logs(), Clock(), MemoryStore()
        log = logs.at(label_of(revocation_stream(REALM)))
        log.write(*(revoked(bytes([n]) * 32) for n in range(70)))
        first = await follower(logs, clock, store=store).refresh()
        log.read = 0
        again = await follower(logs, clock, store=store).refresh()
        assert log.read == 6
        assert again == first

    asyncio.run(check())


@pytest.mark.parametrize("case", ["rolled back", "rewritten", "gone"])
def test_a_restarted_follower_notices_a_log_that_lost_entries(case: str) -> None:
    """Even if the lost entry was in an incomplete block, which the stored tree does not contain."""

    async def check() -> None:
        clock, store = Clock(), MemoryStore()
        label = label_of(revocation_stream(REALM))
        before, after = Logs(), Logs()
        before.at(label).write(revoked(b"\x01" * 32), revoked(b"\x02" * 32))
        await follower(before, clock, store=store).refresh()
        shown = {
            "rolled back": [revoked(b"\x01" * 32)],
            "rewritten": [revoked(b"\x03" * 32), revoked(b"\x04" * 32)],
            "gone": [],
        }
        after.at(label).write(*shown[case])
        with pytest.raises(DivergenceError, match="rolled back or rewritten"):
            await follower(after, clock, store=store).refresh()
        before.at(label).write(revoked(b"\x05" * 32))
        assert await follower(before, clock, store=store).refresh()

    asyncio.run(check())
