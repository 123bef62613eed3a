"""A hub's keys over time, chained to the hub_id that a client pins (§8.4, B13)."""

import dataclasses
from collections.abc import Callable

import pytest

from veen_core import HubId, HubIdentity, HubPk, Receipt, verify_identity
from veen_core.checkpoint import sign_checkpoint
from veen_core.errors import IdentityError, SignatureError
from veen_core.hashing import Ht, u64be
from veen_core.hub_identity import (
    CheckpointBinding,
    HubKey,
    bind_checkpoint,
    endorsement_digest,
    key_id,
    new_identity,
    rotate,
    sign_identity,
    verify_checkpoint,
    verify_identity_signature,
    verify_receipt,
    verify_successor,
)
from veen_core.ids import Epoch, KeyId, Signature, UnixTime
from veen_core.receipt import sign_receipt

from .simulator import BORN, Hub, flip, signing_key

WINDOW = 600
TURN = UnixTime(BORN + 1_000)


def at(offset: int) -> UnixTime:
    return UnixTime(BORN + offset)


@pytest.fixture
def rotated(hub: Hub) -> Hub:
    """A hub whose second key is valid from TURN; both keys are active for WINDOW seconds."""
    hub.now = TURN
    hub.rotate_key(WINDOW)
    return hub


# --- the chain


def test_hub_id_is_the_hash_of_the_first_key() -> None:
    key = signing_key("hub/0")
    identity = new_identity(key, BORN)
    assert identity.hub_id == Ht("veen/hub-id", key.public)  # B13
    verify_identity(identity, pinned=identity.hub_id)


def test_hub_id_survives_rotation(rotated: Hub) -> None:
    assert rotated.identity.hub_id == Hub().identity.hub_id
    verify_identity(rotated.identity, pinned=Hub().identity.hub_id)


def test_each_key_is_endorsed_by_the_previous_one(rotated: Hub) -> None:
    old, new = rotated.identity.hub_keys
    assert old.endorsement is None
    digest = Ht("veen/hub-key", rotated.identity.hub_id + new.hub_pk + u64be(TURN))
    assert endorsement_digest(rotated.identity.hub_id, new.hub_pk, TURN) == digest
    assert new.endorsement == rotated.keys[0].sign(digest)


def test_the_record_comes_back_from_its_bytes(rotated: Hub) -> None:
    assert HubIdentity.decode(rotated.identity.encode()) == rotated.identity


def test_a_third_key_chains_through_the_second(rotated: Hub) -> None:
    rotated.now = at(5_000)
    rotated.rotate_key(WINDOW)
    verify_identity(rotated.identity, pinned=Hub().identity.hub_id)
    assert [key.valid_until for key in rotated.identity.hub_keys] == [TURN + WINDOW, at(5_000 + WINDOW), None]


def _with_key(identity: HubIdentity, index: int, **changes: object) -> HubIdentity:
    keys = list(identity.hub_keys)
    keys[index] = dataclasses.replace(keys[index], **changes)
    return dataclasses.replace(identity, hub_keys=tuple(keys))


def _stranger_key() -> HubPk:
    return HubPk(signing_key("stranger").public)


BREAKS: dict[str, tuple[Callable[[HubIdentity], HubIdentity], str]] = {
    "no keys": (lambda i: dataclasses.replace(i, hub_keys=()), "empty"),
    "another hub_id": (
        lambda i: dataclasses.replace(i, hub_id=HubId(bytes(32))),
        "hub_id is not the hash of the first key",
    ),
    "another first key": (
        lambda i: _with_key(i, 0, hub_pk=_stranger_key(), key_id=key_id(_stranger_key())),
        "hub_id is not the hash of the first key",
    ),
    "a first key with an endorsement": (
        lambda i: _with_key(i, 0, endorsement=i.hub_keys[1].endorsement),
        "hub_id is not the hash of the first key",
    ),
    "the first key dropped": (lambda i: dataclasses.replace(i, hub_keys=i.hub_keys[1:]), "first key"),
    "a key listed twice": (
        lambda i: dataclasses.replace(i, hub_keys=(*i.hub_keys, i.hub_keys[1])),
        "listed twice",
    ),
    "a wrong key_id": (lambda i: _with_key(i, 1, key_id=KeyId(bytes(32))), "key_id"),
    "an end before the start": (lambda i: _with_key(i, 0, valid_until=BORN), "valid_until"),
    "no endorsement": (lambda i: _with_key(i, 1, endorsement=None), "endorsement .core §8.4.: missing"),
    "a flipped endorsement": (
        lambda i: _with_key(i, 1, endorsement=Signature(flip(i.hub_keys[1].endorsement or b""))),
        "endorsement .core §8.4. does not verify",
    ),
    "an endorsed key replaced": (
        lambda i: _with_key(i, 1, hub_pk=_stranger_key(), key_id=key_id(_stranger_key())),
        "endorsement .core §8.4. does not verify",
    ),
    "an endorsed start moved": (lambda i: _with_key(i, 1, valid_from=TURN + 1), "does not verify"),
    "a key that starts before its endorser": (lambda i: _with_key(i, 1, valid_from=BORN - 1), "order"),
    "a key that starts with its endorser": (lambda i: _with_key(i, 1, valid_from=BORN), "order"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_of_the_chain_is_refused(rotated: Hub, name: str) -> None:
    damage, match = BREAKS[name]
    with pytest.raises(IdentityError, match=match):
        verify_identity(damage(rotated.identity))


def test_another_hub_than_the_pinned_one_is_refused(hub: Hub) -> None:
    with pytest.raises(IdentityError, match="pinned"):
        verify_identity(Hub(name="other").identity, pinned=hub.identity.hub_id)


# --- rotating


def test_only_the_newest_key_endorses_the_next(rotated: Hub) -> None:
    with pytest.raises(IdentityError, match="only the newest key"):
        rotate(rotated.identity, rotated.keys[0], _stranger_key(), at(2_000), WINDOW)


def test_a_key_becomes_valid_after_the_previous_one(rotated: Hub) -> None:
    for offset in (999, 1_000):
        with pytest.raises(IdentityError, match="valid_from must be after"):
            rotate(rotated.identity, rotated.key, _stranger_key(), at(offset), WINDOW)
    rotate(rotated.identity, rotated.key, _stranger_key(), at(1_001), WINDOW)


def test_a_window_is_not_negative(hub: Hub) -> None:
    with pytest.raises(IdentityError, match="the window must be >= 0"):
        rotate(hub.identity, hub.key, _stranger_key(), TURN, -1)
    assert rotate(hub.identity, hub.key, _stranger_key(), TURN, 0).hub_keys[0].valid_until == TURN


def test_a_newest_key_with_an_end_endorses_no_other(hub: Hub) -> None:
    closed = _with_key(hub.identity, 0, valid_until=at(5_000))
    verify_identity(closed)
    with pytest.raises(IdentityError, match="must have no valid_until"):
        rotate(closed, hub.key, _stranger_key(), TURN, WINDOW)


def test_a_key_cannot_be_added_twice(rotated: Hub) -> None:
    with pytest.raises(IdentityError, match="listed twice"):
        rotate(rotated.identity, rotated.key, HubPk(rotated.keys[0].public), at(2_000), WINDOW)


def test_a_record_without_keys_has_no_newest_key(hub: Hub) -> None:
    empty = dataclasses.replace(hub.identity, hub_keys=())
    with pytest.raises(IdentityError, match="empty"):
        rotate(empty, hub.key, _stranger_key(), at(1), WINDOW)
    with pytest.raises(IdentityError, match="empty"):
        verify_identity_signature(empty, Signature(bytes(64)))


# --- which key counts when


@pytest.mark.parametrize(
    ("offset", "active", "signer"),
    [
        pytest.param(0, [0], 0, id="at birth"),
        pytest.param(999, [0], 0, id="just before the rotation"),
        pytest.param(1_000, [0, 1], 1, id="window opens"),
        pytest.param(1_599, [0, 1], 1, id="last second of the window"),
        pytest.param(1_600, [1], 1, id="window closed"),
    ],
)
def test_during_the_window_both_keys_count_and_the_new_one_signs(
    rotated: Hub, offset: int, active: list[int], signer: int
) -> None:
    keys = [key.public for key in rotated.keys]
    assert [key.hub_pk for key in rotated.identity.active_at(at(offset))] == [keys[n] for n in active]
    assert rotated.identity.signing_key_at(at(offset)).hub_pk == keys[signer]


def test_before_the_first_valid_from_no_key_is_active(hub: Hub) -> None:
    with pytest.raises(IdentityError, match="no key is active"):
        hub.identity.signing_key_at(at(-1))


def test_keys_with_the_same_valid_from_are_ordered_by_their_bytes(hub: Hub) -> None:
    # §8.4's example of a deterministic rule: valid_from, then lexicographic hub_pk.
    publics = [HubPk(signing_key(name).public) for name in "abc"]
    keys = tuple(HubKey(key_id=key_id(pk), hub_pk=pk, valid_from=BORN) for pk in publics)
    record = dataclasses.replace(hub.identity, hub_keys=keys)
    assert [key.hub_pk for key in record.in_order()] == sorted(publics)
    assert record.signing_key_at(BORN).hub_pk == max(publics)
    with pytest.raises(IdentityError):  # no hub that rotates its keys gets there
        verify_identity(record)


def test_valid_from_comes_before_bytes_in_the_selection(rotated: Hub) -> None:
    for n in range(2, 6):
        rotated.now = at(1_000 * n)
        rotated.rotate_key(10_000)
    starts = [key.valid_from for key in rotated.identity.in_order()]
    assert starts == sorted(starts)
    assert rotated.identity.signing_key_at(at(5_500)).hub_pk == rotated.hub_pk


# --- receipts


def _receipt(hub: Hub, now: UnixTime, key: int) -> Receipt:
    hub.now = now
    return hub.append(hub.compose("bob"), key=hub.keys[key])


@pytest.mark.parametrize(
    ("offset", "key"),
    [
        pytest.param(500, 0, id="archived key in its time"),
        pytest.param(1_000, 0, id="old key as the window opens"),
        pytest.param(1_599, 0, id="old key as the window ends"),
        pytest.param(1_000, 1, id="new key as the window opens"),
        pytest.param(9_000, 1, id="new key later"),
    ],
)
def test_a_receipt_counts_under_any_key_active_at_its_hub_ts(rotated: Hub, offset: int, key: int) -> None:
    receipt = _receipt(rotated, at(offset), key)
    assert verify_receipt(rotated.identity, receipt).hub_pk == rotated.keys[key].public


@pytest.mark.parametrize(
    ("offset", "key"),
    [
        pytest.param(-1, 0, id="before the hub was born"),
        pytest.param(999, 1, id="new key before its time"),
        pytest.param(1_600, 0, id="old key after the window"),
    ],
)
def test_a_receipt_of_a_key_not_active_at_its_hub_ts_is_refused(rotated: Hub, offset: int, key: int) -> None:
    with pytest.raises(SignatureError, match=f"active at hub_ts {at(offset)}"):
        verify_receipt(rotated.identity, _receipt(rotated, at(offset), key))


def test_a_receipt_of_a_key_of_another_hub_is_refused(hub: Hub) -> None:
    receipt = sign_receipt(signing_key("stranger"), hub.append(hub.compose("bob")))
    with pytest.raises(SignatureError):
        verify_receipt(hub.identity, receipt)


# --- checkpoints


@pytest.mark.parametrize(
    ("epoch_offset", "key", "counts"),
    [
        pytest.param(0, 0, True, id="old key in its epoch"),
        pytest.param(0, 1, False, id="new key too early"),
        pytest.param(17, 0, True, id="old key in the window"),
        pytest.param(17, 1, True, id="new key in the window"),
        pytest.param(40, 0, False, id="old key too late"),
        pytest.param(40, 1, True, id="new key later"),
    ],
)
def test_a_checkpoint_counts_under_any_key_active_in_its_epoch(
    rotating_hub: Hub, epoch_offset: int, key: int, counts: bool
) -> None:
    hub = rotating_hub
    hub.write("bob")
    hub.now = TURN
    hub.rotate_key(WINDOW)
    unsigned = dataclasses.replace(hub.checkpoint(1), epoch=Epoch(BORN // 60 + epoch_offset))
    signed = sign_checkpoint(hub.keys[key], unsigned)
    if counts:
        assert verify_checkpoint(hub.identity, signed, 60).hub_pk == hub.keys[key].public
    else:
        with pytest.raises(SignatureError, match="active in epoch"):
            verify_checkpoint(hub.identity, signed, 60)


E = BORN // 60 + 5


@pytest.mark.parametrize(
    ("valid_from", "window", "key", "counts"),
    [
        pytest.param(60 * (E + 1), 600, 1, False, id="valid from the end of the epoch"),
        pytest.param(60 * (E + 1) - 1, 600, 1, True, id="valid from its last second"),
        pytest.param(60 * E - 100, 100, 0, False, id="valid until its start"),
        pytest.param(60 * E - 100, 101, 0, True, id="valid until after its first second"),
    ],
)
def test_a_key_counts_for_an_epoch_if_it_shares_a_second_with_it(
    rotating_hub: Hub, valid_from: int, window: int, key: int, counts: bool
) -> None:
    hub = rotating_hub
    hub.write("bob")
    hub.now = UnixTime(valid_from)
    hub.rotate_key(window)
    signed = sign_checkpoint(hub.keys[key], dataclasses.replace(hub.checkpoint(1), epoch=Epoch(E)))
    if counts:
        assert verify_checkpoint(hub.identity, signed, 60).hub_pk == hub.keys[key].public
    else:
        with pytest.raises(SignatureError, match=f"active in epoch {E}"):
            verify_checkpoint(hub.identity, signed, 60)


@pytest.mark.parametrize("key", [0, 1], ids=["archived key", "current key"])
def test_without_epochs_any_key_of_the_hub_counts_for_a_checkpoint(rotated: Hub, key: int) -> None:
    rotated.write("bob")
    signed = sign_checkpoint(rotated.keys[key], rotated.checkpoint(1))
    assert verify_checkpoint(rotated.identity, signed, 0).hub_pk == rotated.keys[key].public


def test_without_epochs_a_strangers_checkpoint_is_still_refused(hub: Hub) -> None:
    hub.write("bob")
    with pytest.raises(SignatureError):
        verify_checkpoint(hub.identity, sign_checkpoint(signing_key("stranger"), hub.checkpoint(1)), 0)


# --- the artifacts of the data directory


def test_the_newest_key_signs_the_record(rotated: Hub) -> None:
    verify_identity_signature(rotated.identity, sign_identity(rotated.key, rotated.identity))
    with pytest.raises(SignatureError, match=r"hub-identity\.sig"):
        verify_identity_signature(rotated.identity, sign_identity(rotated.keys[0], rotated.identity))


def test_an_offline_root_key_may_sign_the_record_instead(hub: Hub) -> None:
    root = signing_key("offline root")
    signature = sign_identity(root, hub.identity)
    verify_identity_signature(hub.identity, signature, root_key=root.public)
    with pytest.raises(SignatureError):
        verify_identity_signature(hub.identity, signature)


def test_the_key_map_names_every_key_by_its_id(rotated: Hub) -> None:
    assert rotated.identity.key_map == {key_id(HubPk(k.public)): k.public for k in rotated.keys}


def test_a_checkpoint_binding_ties_the_checkpoint_to_hub_and_key(hub: Hub) -> None:
    hub.write("bob")
    checkpoint = hub.checkpoint(1)
    signer = verify_checkpoint(hub.identity, checkpoint, 0)
    assert bind_checkpoint(hub.identity, signer, checkpoint) == CheckpointBinding(
        hub_id=hub.identity.hub_id,
        key_id=key_id(hub.hub_pk),
        label=hub.label,
        epoch=Epoch(0),
        upto_seq=checkpoint.upto_seq,
        mmr_root=checkpoint.mmr_root,
    )


# --- what a later record may change


def test_a_later_record_may_add_keys_and_end_a_key_that_had_no_end(hub: Hub) -> None:
    held = hub.identity
    hub.now = TURN
    hub.rotate_key(WINDOW)
    signature = sign_identity(hub.key, hub.identity)
    verify_successor(held, hub.identity, signature)
    verify_successor(hub.identity, hub.identity, signature)


def test_a_later_record_is_signed_by_its_newest_key(rotated: Hub) -> None:
    """Endorsements do not cover the ends: without the signature anybody could retire a key."""
    held = Hub().identity
    retired = _with_key(held, 0, valid_until=at(1))
    verify_identity(retired, pinned=held.hub_id)
    for signer in (signing_key("stranger"), rotated.key):
        with pytest.raises(SignatureError, match=r"hub-identity\.sig"):
            verify_successor(held, retired, sign_identity(signer, retired))
    verify_successor(held, rotated.identity, sign_identity(rotated.key, rotated.identity))
    with pytest.raises(SignatureError):
        verify_successor(held, rotated.identity, sign_identity(rotated.keys[0], rotated.identity))
    with pytest.raises(SignatureError):
        verify_successor(held, rotated.identity, sign_identity(rotated.key, held))


def test_a_later_record_may_not_end_a_key_before_the_next_begins(rotated: Hub) -> None:
    """Otherwise receipts that verified before would no longer verify (§8.4)."""
    born, first, second = Hub().identity, rotated.keys[0], rotated.key
    alone = _with_key(born, 0, valid_until=at(1))
    gap = _with_key(rotated.identity, 0, valid_until=TURN - 1)
    newest = _with_key(rotated.identity, 1, valid_until=TURN + 1)
    for held, shown, key in ((born, alone, first), (born, gap, second), (rotated.identity, newest, second)):
        with pytest.raises(IdentityError, match="ends before its successor becomes valid"):
            verify_successor(held, shown, sign_identity(key, shown))
    seamless = _with_key(rotated.identity, 0, valid_until=TURN)
    verify_successor(born, seamless, sign_identity(second, seamless))


def test_a_later_record_may_not_end_a_key_before_the_newest_receipt_seen(hub: Hub) -> None:
    held, backdated = hub.identity, at(10)
    shown = rotate(held, hub.key, HubPk(signing_key("next").public), backdated, WINDOW)
    signature = sign_identity(signing_key("next"), shown)
    verify_successor(held, shown, signature, seen=UnixTime(backdated + WINDOW - 1))
    with pytest.raises(IdentityError, match="but it signed a receipt at"):
        verify_successor(held, shown, signature, seen=UnixTime(backdated + WINDOW))


@pytest.mark.parametrize("window", [2**64, 2**64 - 1 - TURN + 1])
def test_a_window_that_ends_beyond_the_largest_time_is_refused(hub: Hub, window: int) -> None:
    with pytest.raises(IdentityError, match="ends beyond"):
        rotate(hub.identity, hub.key, _stranger_key(), TURN, window)


def test_the_longest_window_is_encodable(hub: Hub) -> None:
    longest = rotate(hub.identity, hub.key, _stranger_key(), TURN, 2**64 - 1 - TURN)
    assert HubIdentity.decode(longest.encode()) == longest


SETBACKS: dict[str, tuple[Callable[[HubIdentity], HubIdentity], str]] = {
    "keys gone": (lambda i: dataclasses.replace(i, hub_keys=i.hub_keys[:1]), "earlier record is missing"),
    "an end moved": (lambda i: _with_key(i, 0, valid_until=TURN + 9_999), "valid_until of a key was changed"),
    "an end taken back": (lambda i: _with_key(i, 0, valid_until=None), "valid_until of a key was changed"),
}


@pytest.mark.parametrize("name", SETBACKS)
def test_a_later_record_may_not_remove_or_change_anything(rotated: Hub, name: str) -> None:
    change, match = SETBACKS[name]
    shown = change(rotated.identity)
    signer = rotated.keys[len(shown.hub_keys) - 1]
    with pytest.raises(IdentityError, match=match):
        verify_successor(rotated.identity, shown, sign_identity(signer, shown))


def test_a_later_record_does_not_replace_a_key(hub: Hub) -> None:
    born, first = hub.identity, hub.key
    held = rotate(born, first, HubPk(signing_key("a").public), TURN, WINDOW)
    shown = rotate(born, first, HubPk(signing_key("b").public), TURN, WINDOW)
    with pytest.raises(IdentityError, match="replaced"):
        verify_successor(held, shown, sign_identity(signing_key("b"), shown))


def test_a_later_record_must_be_of_the_same_hub(hub: Hub) -> None:
    other = Hub(name="other")
    with pytest.raises(IdentityError, match="pinned"):
        verify_successor(hub.identity, other.identity, sign_identity(other.key, other.identity))


def test_a_key_without_an_end_is_active_for_ever(hub: Hub) -> None:
    (key,) = hub.identity.hub_keys
    assert isinstance(key, HubKey)
    assert key.active_at(UnixTime(2**63))
