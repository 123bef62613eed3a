from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from veen_core import hub_identity
from veen_core.checkpoint import verify_witnesses
from veen_core.errors import IdentityError
from veen_core.ids import HubPk, Signature, StreamSeq
from veen_core.profile import PROFILES
from veen_core.receipt import verify_receipt
from veen_storage.disk.files import Files
from veen_storage.errors import LockedError, StorageError
from veen_storage.opening.rotation import rotate
from veen_storage.store import Store, create

from .conftest import MakeStore
from .sample import BORN, HUB_KEY, ORDERS, SMALL, at, checkpoint, send, signing_key

NEXT_KEY = signing_key("hub/1")
OLD_PK, NEXT_PK = HubPk(HUB_KEY.public), HubPk(NEXT_KEY.public)


def test_the_new_key_signs_from_its_time_on_and_old_receipts_stay_valid(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    (old,) = send(store, ORDERS, now=at(10))
    store.close()
    rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50)
    store = make_store()
    (before,), (after,) = send(store, ORDERS, now=at(99)), send(store, ORDERS, now=at(100))
    for receipt, key in ((old, OLD_PK), (before, OLD_PK), (after, NEXT_PK)):
        verify_receipt(receipt, key)
        assert hub_identity.verify_receipt(store.identity, receipt).hub_pk == key


def test_checkpoints_in_the_window_carry_both_keys_witness_signatures(
    make_store: MakeStore, tmp_path: Path
) -> None:
    make_store().close()
    rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50)
    store = make_store()
    for number, now in enumerate((99, 100, 149, 150), start=1):
        send(store, ORDERS, now=at(now))
        checkpoint(store, ORDERS, at(now))
        made = store.read.checkpoint(ORDERS, StreamSeq(number))
        in_window = now in (100, 149)
        assert (made.witness_sigs is not None) == in_window
        if in_window:
            verify_witnesses(made, [OLD_PK, NEXT_PK])
        hub_identity.verify_checkpoint(store.identity, made, 0)


def test_a_label_that_slept_through_the_rotation_can_still_roll(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Its checkpoint is of an epoch in which only the old key was active (§8.4, H9)."""
    store = make_store(profile=PROFILES["rotating"])
    send(store, ORDERS, 8, now=at(0))
    store.close()
    rotate(tmp_path / "data", NEXT_KEY, at(1_000), window_sec=10)
    store = make_store()
    send(store, ORDERS, now=at(2_000))
    made = store.read.checkpoint(ORDERS, StreamSeq(8))
    assert hub_identity.verify_checkpoint(store.identity, made, 60).hub_pk == OLD_PK
    store.apply()
    store.close()
    assert make_store().read.checkpoint(ORDERS, StreamSeq(8)) == made


def test_a_hub_rotates_again_and_every_receipt_stays_valid(make_store: MakeStore, tmp_path: Path) -> None:
    receipts = []
    for n in range(4):
        store = make_store()
        receipts += send(store, ORDERS, now=at(100 * n + 10))
        store.close()
        rotate(tmp_path / "data", signing_key(f"hub/{n + 1}"), at(100 * n + 50), window_sec=5)
    identity = make_store().identity
    assert len(identity.hub_keys) == 5
    signers = [hub_identity.verify_receipt(identity, receipt).hub_pk for receipt in receipts]
    assert signers == [signing_key(f"hub/{n}").public for n in range(4)]


def test_without_the_new_keys_file_the_hub_opens_and_refuses_to_sign(
    make_store: MakeStore, tmp_path: Path
) -> None:
    make_store().close()
    identity = rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50)
    (tmp_path / "data" / "keys" / f"hub-{identity.newest.key_id.hex()}.key").unlink()
    store = make_store()
    send(store, ORDERS, now=at(99))
    with pytest.raises(StorageError, match="put its file back"):
        send(store, ORDERS, now=at(100))
    assert store.read.head(ORDERS).stream_seq == 1


def test_a_key_cannot_take_over_before_the_last_receipt(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, now=at(100))
    store.close()
    with pytest.raises(StorageError, match=r"has signed receipts up to \d{4}-\d\d-\d\d "):
        rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=0)
    rotate(tmp_path / "data", NEXT_KEY, at(101), window_sec=0)


def test_keys_in_another_folder_are_rotated_there(tmp_path: Path) -> None:
    keys, data = tmp_path / "keys", tmp_path / "data"
    create(data, HUB_KEY, BORN, limits=SMALL, keys_directory=keys)
    with pytest.raises(StorageError, match="must endorse"):
        rotate(data, NEXT_KEY, at(100), window_sec=50)
    rotate(data, NEXT_KEY, at(100), window_sec=50, keys_directory=keys)
    assert len(list(keys.iterdir())) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in keys.iterdir())
    assert not (data / "keys").exists()


def test_an_open_directory_is_not_rotated(store: Store) -> None:
    with pytest.raises(LockedError, match="in use"):
        rotate(store.layout.root, NEXT_KEY, at(100), window_sec=50)


def test_the_same_rotation_again_changes_nothing(make_store: MakeStore, tmp_path: Path) -> None:
    make_store().close()
    first = rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50)
    assert rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50) == first
    with pytest.raises(IdentityError, match="listed twice"):
        rotate(tmp_path / "data", NEXT_KEY, at(200), window_sec=50)


class _CrashError(Exception):
    """The machine stops here."""


class _Crashing(Files):
    """Stops at the n-th call that changes anything, before or after it took effect."""

    def __init__(self, stop_at: int, *, after: bool) -> None:
        self._left = stop_at
        self._after = after

    def _step(self, after: bool) -> None:
        if after == self._after:
            self._left -= 1
            if self._left == 0:
                raise _CrashError

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self._step(False)
        super().write(fd, data, offset)
        self._step(True)

    def rename(self, source: Path, target: Path) -> None:
        self._step(False)
        super().rename(source, target)
        self._step(True)

    def remove(self, path: Path) -> None:
        self._step(False)
        super().remove(path)
        self._step(True)


@pytest.mark.parametrize("after", [False, True], ids=["before-the-call", "after-the-call"])
def test_a_crash_at_any_point_leaves_a_directory_that_opens(tmp_path: Path, after: bool) -> None:
    outcomes = set()
    for stop_at in itertools.count(1):
        root = tmp_path / str(stop_at)
        create(root, HUB_KEY, BORN, limits=SMALL)
        with Store(root, background=False) as store:
            (old,) = send(store, ORDERS, now=at(10))
        try:
            rotate(root, NEXT_KEY, at(100), 50, files=_Crashing(stop_at, after=after))
            finished = True
        except _CrashError:
            finished = False
        with Store(root, background=False) as store:
            hub_identity.verify_receipt(store.identity, old)
            (new,) = send(store, ORDERS, now=at(200))
            outcomes.add(hub_identity.verify_receipt(store.identity, new).hub_pk)
            assert not store.layout.identity_next.exists()
        if finished:
            break
    assert outcomes == {OLD_PK, NEXT_PK}
    assert stop_at > 8


def test_a_rotation_interrupted_before_its_commit_point_can_be_repeated(tmp_path: Path) -> None:
    root = tmp_path / "data"
    create(root, HUB_KEY, BORN, limits=SMALL)
    with pytest.raises(_CrashError):
        rotate(root, NEXT_KEY, at(100), 50, files=_Crashing(3, after=False))  # the key's file is there
    assert len(list((root / "keys").glob("*.key"))) == 2
    rotate(root, NEXT_KEY, at(100), 50)
    with Store(root, background=False) as store:
        assert hub_identity.verify_receipt(store.identity, send(store, ORDERS, now=at(100))[0])


def test_the_record_lists_both_keys_and_is_signed_by_the_new_one(
    make_store: MakeStore, tmp_path: Path
) -> None:
    first = make_store()
    held = first.identity
    first.close()
    shown = rotate(tmp_path / "data", NEXT_KEY, at(100), window_sec=50)
    signature = Signature((tmp_path / "data" / "hub-identity.sig").read_bytes())
    hub_identity.verify_successor(held, shown, signature)
    assert shown.hub_keys[0].valid_until == at(150)
    assert make_store().identity == shown
    assert shown.newest.valid_from == at(100)
