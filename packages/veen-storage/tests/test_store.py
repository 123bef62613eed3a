from __future__ import annotations

import dataclasses
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veen_core import hub_identity
from veen_core.cap import Rate, resign
from veen_core.checkpoint import Checkpoint
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, HubPk, Label, Signature, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import PROFILES
from veen_core.rate import Bucket
from veen_storage.commit import cursor_cache, journal
from veen_storage.commit.writer import SIGN_AHEAD
from veen_storage.disk.hub_keys import HubKeys, SignHere, sign_here
from veen_storage.errors import (
    DamageError,
    LockedError,
    MismatchError,
    PoisonedError,
    StorageError,
)
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import repair
from veen_storage.index.lmdb_index import Index
from veen_storage.store import Store, create

from .conftest import MakeStore
from .sample import (
    BORN,
    CONTROL,
    HUB_ID,
    HUB_KEY,
    INVOICES,
    ORDERS,
    SMALL,
    Unsynced,
    add,
    at,
    authorize,
    checkpoint,
    label,
    send,
    signing_key,
    token,
    tree,
)


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


# --- creating


def test_a_new_directory_holds_what_the_specification_asks_for(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    assert store.identity.hub_id == HUB_ID == store.registry.hub_id
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names >= {"VERSION", "registry.cbor", "hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor"}
    assert names >= {"checkpoint-binding.cbor", "keys", "journal", "log", "attachments", "index"}
    assert not list((tmp_path / "data").glob("*.tmp"))
    assert not (tmp_path / "data" / "hub-identity.next").exists()


def test_secret_keys_are_for_their_owner_only(store: Store) -> None:
    (path,) = store.layout.keys.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert HUB_KEY.seed in path.read_bytes()
    outside = [content for name, content in tree(store.layout.root).items() if not name.startswith("keys/")]
    assert not any(HUB_KEY.seed in content for content in outside)


def test_nothing_is_created_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(StorageError, match="is not empty"):
        create(tmp_path, HUB_KEY, BORN)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_keys_may_be_kept_elsewhere(tmp_path: Path) -> None:
    create(tmp_path / "data", HUB_KEY, BORN, limits=SMALL, keys_directory=tmp_path / "keys")
    assert not (tmp_path / "data" / "keys").exists()
    with Store(tmp_path / "data", keys_directory=tmp_path / "keys", background=False) as store:
        assert send(store, ORDERS)


# --- opening, and refusing to


def test_a_directory_opens_once_at_a_time(store: Store) -> None:
    with pytest.raises(LockedError, match=r"in use by process \d+"):
        Store(store.layout.root)
    store.close()
    Store(store.layout.root).close()


def test_closing_twice_is_safe(store: Store) -> None:
    store.close()
    store.close()


def test_a_folder_that_is_not_a_data_directory_is_not_opened(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StorageError, match="not a VEEN data directory"):
            Store(root)
    (tmp_path / "file").write_text("hello")
    with pytest.raises((StorageError, NotADirectoryError)):
        Store(tmp_path / "file")
    assert not (tmp_path / "lock").exists()


def test_a_newer_format_is_not_opened(store: Store) -> None:
    store.close()
    version = store.layout.version
    version.write_text(version.read_text().replace(" 1 ", " 7 "))
    with pytest.raises(MismatchError, match="data format 7"):
        Store(store.layout.root)


def test_changed_limits_are_refused_and_named(store: Store) -> None:
    store.close()
    Store(store.layout.root, limits=SMALL).close()
    with pytest.raises(MismatchError, match="max_checkpoint_interval: the directory was created with 8"):
        Store(store.layout.root, limits=dataclasses.replace(SMALL, max_checkpoint_interval=9))


def test_another_profile_is_refused(store: Store) -> None:
    store.close()
    with pytest.raises(MismatchError, match="profile"):
        Store(store.layout.root, profile=PROFILES["bulk"])


MIXED: list[tuple[str, type[StorageError]]] = [
    ("hub-identity.cbor", MismatchError),
    ("hub-identity.sig", DamageError),
    ("hub-key-map.cbor", DamageError),
    ("registry.cbor", DamageError),
    ("index", MismatchError),
]


@pytest.mark.parametrize(("name", "error"), MIXED, ids=[name for name, _ in MIXED])
def test_another_hubs_files_mixed_in_are_refused(
    make_store: MakeStore, name: str, error: type[StorageError]
) -> None:
    ours, theirs = make_store("ours"), make_store("theirs", key=signing_key("other hub"))
    for store in (ours, theirs):
        send(store, ORDERS)
        store.close()
    source, target = theirs.layout.root / name, ours.layout.root / name
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    with pytest.raises(error, match=name):
        Store(ours.layout.root)


@pytest.mark.parametrize(
    "name", ["registry.cbor", "hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor"]
)
def test_a_missing_artifact_is_named(store: Store, name: str) -> None:
    store.close()
    (store.layout.root / name).unlink()
    with pytest.raises(DamageError, match=f"{name}: is missing"):
        Store(store.layout.root)


def test_a_refused_opening_releases_the_lock_and_the_index(store: Store) -> None:
    send(store, ORDERS)
    store.close()
    held = store.layout.key_map.read_bytes()
    store.layout.key_map.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(DamageError):
            Store(store.layout.root)
    store.layout.key_map.write_bytes(held)
    Store(store.layout.root).close()


def test_without_its_key_a_hub_reads_and_does_not_sign(make_store: MakeStore) -> None:
    store = make_store()
    send(store, ORDERS, 3)
    store.close()
    shutil.rmtree(store.layout.keys)
    store = make_store()
    assert store.read.entry(ORDERS, seq(3)).stream_seq == 3
    with pytest.raises(StorageError, match="is not available; put its file back"):
        send(store, ORDERS)
    assert store.read.head(ORDERS).stream_seq == 3
    assert store.poisoned is None


@pytest.mark.parametrize("content", [b"", b"nonsense"], ids=["empty", "nonsense"])
def test_a_damaged_key_file_is_named_and_not_shown(store: Store, content: bytes) -> None:
    store.close()
    (path,) = store.layout.keys.iterdir()
    path.write_bytes(content)
    with pytest.raises(DamageError, match=f"{path.name}: is not a hub key file") as refused:
        Store(store.layout.root)
    assert HUB_KEY.seed.hex() not in str(refused.value)


def test_another_key_under_the_keys_name_is_refused(make_store: MakeStore) -> None:
    ours, theirs = make_store("ours"), make_store("theirs", key=signing_key("other hub"))
    ours.close()
    (mine,), (other,) = ours.layout.keys.iterdir(), theirs.layout.keys.iterdir()
    shutil.copy(other, mine)
    with pytest.raises(DamageError, match="does not contain the key that its name says"):
        Store(ours.layout.root)


# --- writing


def test_a_batch_that_is_dropped_changes_nothing(store: Store) -> None:
    send(store, ORDERS, 2)
    store.apply()
    before = tree(store.layout.log), tree(store.layout.journal)
    batch = store.batch(at(50))
    first = add(batch, ORDERS).entry.receipt
    add(batch, INVOICES)
    batch.authorize(token(), token().encode(), CONTROL)
    batch.checkpoint(ORDERS)
    del batch
    store.apply()
    assert (tree(store.layout.log), tree(store.layout.journal)) == before
    assert store.read.head(ORDERS).stream_seq == 2
    assert store.read.head(INVOICES) is None
    assert store.read.head(CONTROL) is None
    assert store.read.latest_checkpoint(ORDERS) is None
    (again,) = send(store, ORDERS, now=at(50))
    assert again == first


def test_an_empty_batch_writes_nothing(store: Store) -> None:
    before = tree(store.layout.journal)
    store.commit(store.batch(at(1)))
    assert tree(store.layout.journal) == before


def test_receipts_are_visible_only_after_the_commit(make_store: MakeStore) -> None:
    seen: list[int] = []

    class Watching(Unsynced):
        store: Store | None = None

        def sync(self, fd: int) -> None:
            if self.store is not None:
                head = self.store.read.head(ORDERS)
                seen.append(head.stream_seq if head is not None else 0)
            super().sync(fd)

    files = Watching()
    store = make_store(files=files)
    files.store = store
    for n in range(3):
        send(store, ORDERS, 2)
        assert store.read.head(ORDERS).stream_seq == 2 * n + 2
    files.store = None
    assert seen == [0, 0, 2, 4]  # while a segment began and the journal was synced: what was before


def test_a_failed_sync_acknowledges_nothing_and_poisons(make_store: MakeStore) -> None:
    class Failing(Unsynced):
        failing = False

        def sync(self, fd: int) -> None:
            if self.failing:
                raise OSError(5, "Input/output error")
            super().sync(fd)

    files = Failing()
    store = make_store(files=files)
    send(store, ORDERS)
    files.failing = True
    with pytest.raises(PoisonedError, match="nothing of this batch is acknowledged"):
        send(store, ORDERS)
    files.failing = False
    assert store.poisoned is not None
    with pytest.raises(PoisonedError, match="reopen"):
        send(store, ORDERS)
    assert store.read.head(ORDERS).stream_seq == 1


def test_hub_ts_never_goes_back_not_even_across_a_restart(make_store: MakeStore) -> None:
    times = []
    for now in (100, 50, 100, 99):
        store = make_store()
        times.append(send(store, ORDERS, now=at(now))[0].hub_ts)
        times.append(send(store, INVOICES, now=at(now - 1))[0].hub_ts)
        if now == 50:
            store.apply()
        store.close()
    assert times == [at(100)] * 8
    assert send(make_store(), ORDERS, now=at(101))[0].hub_ts == at(101)


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "in-the-journal"])
def test_all_state_is_restored_after_reopening(make_store: MakeStore, applied: bool) -> None:
    store = make_store()
    receipts = [r for n in range(20) for r in send(store, ORDERS, now=at(n), who=f"person {n % 3}")]
    authorize(store, given := token(rate=Rate(per_sec=1, burst=5)), at(30))
    send(store, ORDERS, 2, auth_ref=given.auth_ref, now=at(31))
    checkpoint(store, ORDERS, at(31))
    view = store.batch(at(31)).view
    client, cap = view.client(ORDERS, ClientId(signing_key("person 1").public)), view.cap(given.auth_ref)
    bucket = view.bucket(given.auth_ref, ORDERS)
    if applied:
        store.apply()
    store.close()
    store = make_store()
    assert [store.read.receipt(ORDERS, seq(n)) for n in range(1, 21)] == receipts
    view = store.batch(at(31)).view
    assert view.client(ORDERS, ClientId(signing_key("person 1").public)) == client
    assert view.cap(given.auth_ref) == cap
    assert view.bucket(given.auth_ref, ORDERS) == bucket is not None
    assert store.read.checkpoint(ORDERS, seq(22)).upto_seq == 22
    assert not list(store.layout.journal.glob("journal-*.wal"))


# --- tokens and rates


def test_authorizing_appends_the_token_and_fixes_issued_at(store: Store) -> None:
    given = token()
    receipt = authorize(store, given, at(10))
    entry = store.read.entry(CONTROL, seq(1))
    assert entry.is_authorize
    assert entry.msg_bytes == given.encode()
    assert entry.receipt == receipt
    record = store.batch(at(99)).view.cap(given.auth_ref)
    assert record is not None
    assert (record.issued_at, record.control_seq, record.token) == (at(10), 1, given)


def test_the_first_use_of_an_unknown_token_fixes_issued_at(store: Store) -> None:
    given = token()
    send(store, ORDERS, auth_ref=given.auth_ref, now=at(5))
    send(store, ORDERS, auth_ref=given.auth_ref, now=at(9))
    record = store.batch(at(99)).view.cap(given.auth_ref)
    assert record is not None
    assert (record.issued_at, record.control_seq, record.token) == (at(5), 0, None)


def test_buckets_can_be_recomputed_from_receipts_alone(make_store: MakeStore) -> None:
    """H8: refilled by whole seconds of hub_ts, taken from by accepted messages, per (auth_ref, label)."""
    store = make_store()
    rate = Rate(per_sec=2, burst=7)
    given = token(rate=rate)
    authorize(store, given)
    for second in (0, 0, 1, 5, 5, 5, 6, 30):
        for name in (ORDERS, INVOICES):
            send(store, name, 2, auth_ref=given.auth_ref, now=at(second))
        if second == 5:
            store.apply()
    for again in (False, True):
        if again:
            store.close()
            store = make_store()
        for name in (ORDERS, INVOICES):
            bucket: Bucket | None = None
            for entry in store.read.entries(name, seq(1), 100):
                now = entry.receipt.hub_ts
                bucket = (bucket or Bucket.full(rate, now)).at(rate, now).take()
            assert store.batch(at(30)).view.bucket(given.auth_ref, name) == bucket


def test_tokens_with_the_same_claims_share_issued_at_and_buckets(make_store: MakeStore) -> None:
    """A holder can shorten the signature chain; each prefix has its own auth_ref and gains nothing."""
    store = make_store()
    short = token(rate=Rate(per_sec=1, burst=5))
    long = resign(signing_key("admin"), short)
    assert short.claims_ref == long.claims_ref
    authorize(store, long, at(10))
    authorize(store, short, at(70))
    send(store, ORDERS, 2, auth_ref=long.auth_ref, now=at(80))
    send(store, ORDERS, 2, auth_ref=short.auth_ref, now=at(80))
    for again in (False, True):
        if again:
            store.close()
            assert fsck(store.layout.root).ok
            store = make_store()
        view = store.batch(at(80)).view
        for held in (short, long):
            record = view.cap(held.auth_ref)
            assert record is not None
            assert view.issued_at(record) == at(10)
            assert view.bucket(held.auth_ref, ORDERS) == Bucket(1, at(80))


def test_an_index_of_an_earlier_format_asks_for_a_repair(make_store: MakeStore) -> None:
    store = make_store()
    send(store, ORDERS)
    store.close()
    index = Index(store.layout.index)
    index.write(lambda txn: txn.delete("meta", b"format"))
    index.close()
    with pytest.raises(MismatchError, match="run `veen hub repair`"):
        make_store()
    repair(store.layout.root)
    make_store().close()


def test_reading_cursors_without_writing_keeps_the_cache_bounded(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused messages look cursors up and change nothing (§3.4.1)."""
    monkeypatch.setattr(cursor_cache, "MAX_CACHED_CURSORS", 8)
    store = make_store()
    labels = [Label(H(bytes([n]))) for n in range(40)]
    for name in labels:
        send(store, name)
    store.close()
    store = make_store()
    view = store.batch(at(0)).view
    for name in labels:
        assert view.client(name, ClientId(signing_key("alice").public)) is not None
    assert len(store._ledger._labels._values) <= 8
    assert len(store._ledger._clients._values) <= 8


def test_a_batch_sees_its_own_messages(store: Store) -> None:
    batch = store.batch(at(0))
    add(batch, ORDERS)
    add(batch, ORDERS)
    cursor = batch.label(ORDERS)
    client = batch.view.client(ORDERS, ClientId(signing_key("alice").public))
    assert cursor is not None
    assert client is not None
    assert (cursor.log.size, client.last_seq) == (2, 2)
    assert store.read.head(ORDERS) is None


def test_a_custom_signer_is_used(make_store: MakeStore) -> None:
    calls: list[str] = []

    class Counting(HubKeys):
        def sign_receipts(self, digests: list[bytes], now: UnixTime) -> Sequence[Signature]:
            calls.append(f"{len(digests)} receipts")
            return super().sign_receipts(digests, now)

        def sign_checkpoint(self, unsigned: Checkpoint, now: UnixTime) -> Checkpoint:
            calls.append("checkpoint")
            return super().sign_checkpoint(unsigned, now)

    store = make_store()
    identity: HubIdentity = store.identity
    store.close()
    key = {hub_identity.key_id(HubPk(HUB_KEY.public)): HUB_KEY}
    store = make_store(signer=Counting(identity, key))
    batch = store.batch(BORN)
    for _ in range(9):
        add(batch, ORDERS)
    store.commit(batch)
    assert calls == ["8 receipts", "checkpoint", "1 receipts"], "together, up to where a chunk ends"
    assert [store.read.receipt(ORDERS, seq(n)) for n in range(1, 10)] == batch.receipts


def test_the_signer_gets_a_hint_of_receipts_while_others_are_still_added(make_store: MakeStore) -> None:
    calls: list[tuple[str, list[bytes]]] = []

    class Told(SignHere):
        def expect(self, _key: SigningKey, digests: list[bytes]) -> None:
            calls.append(("expect", digests))

        def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
            calls.append(("sign", digests))
            return super().__call__(key, digests)

    store = make_store(limits=DEFAULT_LIMITS)
    store.set_sign_many(Told())
    batch = store.batch(BORN)
    for _ in range(2 * SIGN_AHEAD + 1):
        add(batch, ORDERS)
    store.commit(batch)
    (_, first), (_, second), (_, everything) = calls
    assert [what for what, _digests in calls] == ["expect", "expect", "sign"]
    assert everything[:-1] == first + second
    assert [store.read.receipt(ORDERS, seq(n)) for n in range(1, 2 * SIGN_AHEAD + 2)] == batch.receipts


@pytest.mark.parametrize("wrong", ["too few", "not a signature", "raises"])
def test_a_batch_that_cannot_be_signed_is_kept_whole_or_dropped_whole(
    make_store: MakeStore, wrong: str
) -> None:
    store = make_store()

    class SignWrongly(SignHere):
        def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
            signed: list[Any] = list(super().__call__(key, digests))
            if wrong == "raises":
                raise StorageError("no")
            return signed[:-1] if wrong == "too few" else [*signed[:2], None, *signed[3:]]

    store.set_sign_many(SignWrongly())
    batch = store.batch(BORN)
    for _ in range(5):
        add(batch, ORDERS)
    with pytest.raises((StorageError, TypeError)):
        store.commit(batch)
    assert store.read.head(ORDERS) is None
    store.set_sign_many(sign_here)
    store.commit(batch)
    assert [receipt.stream_seq for receipt in batch.receipts] == [1, 2, 3, 4, 5]
    send(store, ORDERS)
    store.apply()
    store.close()
    assert fsck(store.layout.root, processes=1).ok


def test_the_previous_label_of_a_known_stream_is_named_once(make_store: MakeStore) -> None:
    """H9: only by the first checkpoint of a label."""
    store = make_store(previous_label={ORDERS: INVOICES}.get)
    send(store, ORDERS, 17)
    made = [store.read.checkpoint(ORDERS, seq(n)) for n in (8, 16)]
    assert [c.label_prev for c in made] == [INVOICES, ORDERS]


# --- determinism


LABELS = [label(f"stream {n}") for n in range(3)]
Sent = tuple[int, int, int]
"""Which label, how large, how many seconds later."""
sends = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([10, 700, 1_500]), st.integers(0, 40)),
    min_size=1,
    max_size=40,
)


def feed(store: Store, sent: Sequence[Sent], cuts: set[int], applies: set[int]) -> None:
    """The same messages, committed and applied where the two sets say; hub_ts is the message's own time.

    A batch has one hub_ts, so messages of different seconds are never in one.
    """
    now, batch = 0, store.batch(at(0))
    for number, (which, size, later) in enumerate(sent):
        if later or number in cuts:
            store.commit(batch)
            if number in applies:
                store.apply()
            now += later
            batch = store.batch(at(now))
        add(batch, LABELS[which], body=bytes([number]) * size)
    store.commit(batch)
    store.apply()


@pytest.mark.parametrize("zstd_level", [None, 3], ids=["plain", "zstd"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=sends, cuts=st.sets(st.integers(0, 40)), applies=st.sets(st.integers(0, 40)))
def test_the_log_folder_depends_on_the_log_alone(
    tmp_path_factory: pytest.TempPathFactory,
    zstd_level: int | None,
    sent: list[Sent],
    cuts: set[int],
    applies: set[int],
) -> None:
    """Other batches, other apply rounds, a restart in between: byte for byte the same files (§4.8.3)."""
    folder = tmp_path_factory.mktemp("twins")
    logs: list[dict[str, bytes]] = []
    ways: list[tuple[set[int], set[int]]] = [(cuts, applies), (set(), set())]
    for number, way in enumerate(ways):
        root = folder / str(number)
        create(root, HUB_KEY, BORN, limits=SMALL, zstd_level=zstd_level, files=Unsynced())
        with Store(root, background=False, files=Unsynced()) as store:
            feed(store, sent, *way)
        with Store(root, background=False, files=Unsynced()) as store:
            assert store.lag == 0
        logs.append({**tree(root, "log"), "binding": (root / "checkpoint-binding.cbor").read_bytes()})
    assert logs[0] == logs[1]
    shutil.rmtree(folder)


def test_the_journal_is_trimmed_once_it_is_applied(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 2_000)
    store = make_store()
    for _ in range(20):
        send(store, ORDERS)
    assert len(list(store.layout.journal.glob("journal-*.wal"))) > 3
    store.apply()
    assert len(list(store.layout.journal.glob("journal-*.wal"))) == 1


def test_a_background_store_applies_by_itself(make_store: MakeStore) -> None:
    store = make_store(background=True)
    for _ in range(20):
        send(store, ORDERS)
    assert store.settle()
    assert store.lag == 0
    assert store.layout.chunk(ORDERS, seq(1), seq(8)).exists()
