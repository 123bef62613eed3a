"""CHECKPOINT: shape, signatures, witnesses and the rejections of §4.4.1 one by one."""

import dataclasses

import pytest

from veen_core import (
    Checkpoint,
    DecodeError,
    Ht,
    HubPk,
    Label,
    MmrRoot,
    cbor,
    check_transition,
    verify_checkpoint,
)
from veen_core.checkpoint import LabelOrigin, sign_checkpoint, verify_signature, verify_witnesses
from veen_core.errors import CheckpointError, SignatureError
from veen_core.hub_identity import verify_checkpoint as verify_hub_checkpoint
from veen_core.ids import Epoch, Signature, StreamSeq, UnixTime

from .simulator import BORN, STREAM, Hub, signing_key

WITNESS, OTHER = signing_key("witness"), signing_key("other witness")


@pytest.fixture
def log(hub: Hub) -> Hub:
    hub.write("bob", *(bytes([n]) for n in range(5)))
    return hub


# --- shape and signatures (§4.4, B7)


def test_without_witnesses_the_array_has_seven_items(log: Hub) -> None:
    checkpoint = log.checkpoint(5)
    assert len(checkpoint.codec.write(checkpoint)) == 7
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


def test_with_witnesses_the_array_has_eight_items(log: Hub) -> None:
    checkpoint = log.checkpoint(5, (WITNESS, OTHER))
    assert len(checkpoint.codec.write(checkpoint)) == 8
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


@pytest.mark.parametrize("witnesses", [None, []], ids=["null", "an empty list"])
def test_without_witnesses_there_is_no_eighth_item(log: Hub, witnesses: object) -> None:
    items = [*log.checkpoint(5).codec.write(log.checkpoint(5)), witnesses]
    with pytest.raises(DecodeError, match=r"witness_sigs .core §4\.4."):
        Checkpoint.decode(cbor.encode(items))


def test_the_hub_signs_the_first_six_fields(log: Hub) -> None:
    checkpoint = log.checkpoint(5)
    digest = Ht("veen/sig", cbor.encode(checkpoint.codec.write(checkpoint)[:6]))
    assert checkpoint.hub_sig == log.key.sign(digest)
    verify_signature(checkpoint, log.hub_pk)


def test_checkpoints_are_reproducible(log: Hub) -> None:
    assert log.checkpoint(3).encode() == log.checkpoint(3).encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"upto_seq": 4}, id="upto_seq"),
        pytest.param({"mmr_root": MmrRoot(bytes(32))}, id="mmr_root"),
        pytest.param({"epoch": 1}, id="epoch"),
        pytest.param({"label_prev": Label(bytes(32))}, id="label_prev"),
    ],
)
def test_no_signed_field_can_be_changed(log: Hub, change: dict[str, object]) -> None:
    with pytest.raises(SignatureError, match=r"CHECKPOINT\.hub_sig at upto_seq \d .core §4\.4."):
        verify_signature(dataclasses.replace(log.checkpoint(5), **change), log.hub_pk)


# --- witnesses (KEX0.1, B7)


def test_every_required_witness_has_signed(log: Hub) -> None:
    verify_witnesses(log.checkpoint(5, (WITNESS, OTHER)), [WITNESS.public, OTHER.public])


def test_no_witness_is_required_unless_asked_for(log: Hub) -> None:
    verify_witnesses(log.checkpoint(5), [])


def test_a_missing_witness_is_refused(log: Hub) -> None:
    with pytest.raises(SignatureError, match=f"the signature of witness {OTHER.public.hex()}"):
        verify_witnesses(log.checkpoint(5, (WITNESS,)), [WITNESS.public, OTHER.public])


def test_a_strangers_signature_is_refused(log: Hub) -> None:
    with pytest.raises(SignatureError, match=r"witness_sigs\[1\] .core §4\.4.: verifies under no known"):
        verify_witnesses(log.checkpoint(5, (WITNESS, OTHER)), [WITNESS.public])


def test_a_known_witness_may_sign_without_being_required(log: Hub) -> None:
    verify_witnesses(log.checkpoint(5, (WITNESS, OTHER)), [WITNESS.public], known=[OTHER.public])


def test_one_witness_cannot_sign_for_two(log: Hub) -> None:
    with pytest.raises(SignatureError, match=r"witness_sigs\[1\]"):
        verify_witnesses(log.checkpoint(5, (WITNESS, WITNESS)), [WITNESS.public, OTHER.public])


def test_a_witness_signature_over_another_checkpoint_is_refused(log: Hub) -> None:
    borrowed = log.checkpoint(4, (WITNESS,)).witness_sigs
    with pytest.raises(SignatureError):
        verify_witnesses(dataclasses.replace(log.checkpoint(5), witness_sigs=borrowed), [WITNESS.public])


def test_during_a_rotation_window_both_hub_keys_witness(log: Hub) -> None:
    log.now = UnixTime(BORN + 100)
    log.rotate_key(600)
    both = [key.hub_pk for key in log.identity.active_at(log.now)]
    assert len(both) == 2
    checkpoint = log.checkpoint(5, tuple(log.keys))
    verify_hub_checkpoint(log.identity, checkpoint, 0)
    verify_witnesses(checkpoint, both)
    with pytest.raises(SignatureError, match="the signature of witness"):
        verify_witnesses(log.checkpoint(5, (log.keys[1],)), both)


# --- the rejections of §4.4.1


def test_a_checkpoint_of_the_log_is_accepted(log: Hub) -> None:
    check_transition(
        log.checkpoint(5), log.tree(5), last_upto_seq=StreamSeq(5), origin=log.origin, hub_ts=BORN
    )


def test_a_checkpoint_before_the_last_accepted_one_is_refused(log: Hub) -> None:
    with pytest.raises(CheckpointError, match="before the last checkpoint at 4"):
        check_transition(log.checkpoint(3), log.tree(3), last_upto_seq=StreamSeq(4))


@pytest.mark.parametrize("size", [2, 4], ids=["shorter prefix", "longer prefix"])
def test_a_checkpoint_that_is_not_at_the_end_of_the_prefix_is_refused(log: Hub, size: int) -> None:
    with pytest.raises(CheckpointError, match=f"is not the end of the log of {size}"):
        check_transition(log.checkpoint(3), log.tree(size))


def test_a_checkpoint_with_another_root_is_refused(log: Hub) -> None:
    other = Hub()
    other.write("mallory", b"1", b"2", b"3")
    with pytest.raises(CheckpointError, match="mmr_root at upto_seq 3"):
        check_transition(other.checkpoint(3), log.tree(3))


def test_a_checkpoint_of_an_empty_log_is_refused(log: Hub) -> None:
    empty = dataclasses.replace(log.checkpoint(1), upto_seq=StreamSeq(0), mmr_root=log.tree(0).root)
    with pytest.raises(CheckpointError, match="covers no entry"):
        check_transition(empty, log.tree(0))


def test_without_epochs_the_epoch_is_0(log: Hub) -> None:
    wrong = sign_checkpoint(log.key, dataclasses.replace(log.checkpoint(5), epoch=Epoch(7)))
    with pytest.raises(CheckpointError, match="epoch"):
        check_transition(wrong, log.tree(5), origin=log.origin)


def test_without_epochs_there_is_no_rotation(log: Hub) -> None:
    rotating = dataclasses.replace(log.checkpoint(5), label_prev=Label(bytes(32)))
    with pytest.raises(CheckpointError, match="label_prev"):
        check_transition(rotating, log.tree(5), origin=log.origin)


# --- label rotation (§4.4.1, §12, H9)


@pytest.fixture
def turning(rotating_hub: Hub) -> Hub:
    rotating_hub.write("bob")
    return rotating_hub


def _checkpoint(hub: Hub, **changes: object) -> Checkpoint:
    return dataclasses.replace(hub.checkpoint(1), **changes)


EPOCH = BORN // 60


def test_the_first_checkpoint_of_a_label_may_name_the_previous_label(turning: Hub) -> None:
    checkpoint = _checkpoint(turning, label_prev=turning.origin.label_at(EPOCH - 1))
    assert checkpoint.rotates
    check_transition(checkpoint, turning.tree(1), origin=turning.origin, hub_ts=BORN)


def test_any_other_label_prev_is_refused(turning: Hub) -> None:
    checkpoint = _checkpoint(turning, label_prev=turning.origin.label_at(EPOCH - 2))
    with pytest.raises(CheckpointError, match="label_prev is not the stream's label in the previous epoch"):
        check_transition(checkpoint, turning.tree(1), origin=turning.origin)


def test_the_epoch_is_that_of_the_last_receipts_hub_ts(turning: Hub) -> None:
    checkpoint = _checkpoint(turning, epoch=Epoch(EPOCH + 1))
    check_transition(checkpoint, turning.tree(1), origin=turning.origin, hub_ts=UnixTime(BORN + 60))
    with pytest.raises(CheckpointError, match=r"epoch \d+ is not the epoch of hub_ts"):
        check_transition(checkpoint, turning.tree(1), origin=turning.origin, hub_ts=BORN)


@pytest.mark.parametrize(
    ("distance", "accepted"),
    [
        pytest.param(-1, True, id="one epoch early"),
        pytest.param(1, True, id="one epoch late"),
        pytest.param(-2, False, id="two epochs early"),
        pytest.param(2, False, id="two epochs late"),
    ],
)
def test_a_label_is_valid_only_within_the_skew_of_its_epoch(
    turning: Hub, distance: int, accepted: bool
) -> None:
    checkpoint = _checkpoint(turning, epoch=Epoch(EPOCH + distance))
    if accepted:
        check_transition(checkpoint, turning.tree(1), origin=turning.origin)
    else:
        with pytest.raises(CheckpointError, match="label_curr is not the stream's label"):
            check_transition(checkpoint, turning.tree(1), origin=turning.origin)


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**64 // 60, 2**64 // 60 - 60])
def test_an_epoch_out_of_range_is_refused(turning: Hub, epoch: int) -> None:
    checkpoint = _checkpoint(turning, epoch=Epoch(epoch))
    with pytest.raises(CheckpointError, match="out of range"):
        check_transition(checkpoint, turning.tree(1), origin=turning.origin)
    earlier = dataclasses.replace(checkpoint, epoch=Epoch(2**64 // 60 - 61))
    with pytest.raises(CheckpointError, match="label_curr"):
        check_transition(earlier, turning.tree(1), origin=turning.origin)


def test_the_label_of_another_stream_is_refused(turning: Hub) -> None:
    other = dataclasses.replace(turning.origin, stream_id=type(STREAM)(bytes(32)))
    with pytest.raises(CheckpointError, match="label_curr"):
        check_transition(turning.checkpoint(1), turning.tree(1), origin=other)


def test_the_label_of_epoch_0_has_no_previous_label(rotating_hub: Hub) -> None:
    origin: LabelOrigin = rotating_hub.origin
    rotating_hub.write("bob")
    first = _checkpoint(
        rotating_hub, label_curr=origin.label_at(0), label_prev=Label(bytes(32)), epoch=Epoch(0)
    )
    with pytest.raises(CheckpointError, match="label_prev"):
        check_transition(first, rotating_hub.tree(1), origin=origin)


def test_a_verifier_that_does_not_know_the_stream_checks_the_other_rules(turning: Hub) -> None:
    check_transition(_checkpoint(turning, epoch=Epoch(3)), turning.tree(1))


def test_the_public_verify_checkpoint_verifies_the_signature(log: Hub) -> None:
    signed = log.checkpoint(3)
    verify_checkpoint(signed, log.hub_pk)
    unsigned = dataclasses.replace(signed, hub_sig=Signature(bytes(64)))
    check_transition(unsigned, log.tree(3), origin=log.origin)  # says nothing of signatures
    for forged, key in ((unsigned, log.hub_pk), (signed, HubPk(signing_key("stranger").public))):
        with pytest.raises(SignatureError, match=r"CHECKPOINT\.hub_sig"):
            verify_checkpoint(forged, key)
