"""The invariants of §7: for each, a pair that breaks exactly it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from veen_core import DEFAULT_LIMITS, DEFAULT_PROFILE, PROFILES, Label, MmrRoot, Msg, Receipt, verify_pair
from veen_core.attachment import att_root
from veen_core.errors import InvariantError
from veen_core.ids import AttRoot, ClientSeq, Coid, CtHash, LeafHash, StreamSeq, UnixTime
from veen_core.invariants import INVARIANTS, Attached, Before, Pair

from .simulator import BORN, Hub, flip, long_form


@dataclass
class Case:
    """A pair and the label as it stood before; honest until a test changes it."""

    msg: Msg
    receipt: Receipt
    before: Before

    def verify(self) -> Pair:
        return verify_pair(self.msg.encode(), self.receipt.encode(), self.before)

    def with_msg(self, **changes: object) -> "Case":
        """Another MSG, and a receipt that follows it faithfully."""
        msg = dataclasses.replace(self.msg, **changes)
        log = self.before.log.copy()
        log.append(msg.leaf_hash)
        receipt = dataclasses.replace(self.receipt, leaf_hash=msg.leaf_hash, mmr_root=log.root)
        return Case(msg, receipt, self.before)

    def with_receipt(self, **changes: object) -> "Case":
        return Case(self.msg, dataclasses.replace(self.receipt, **changes), self.before)

    def after(self, **changes: object) -> "Case":
        return Case(self.msg, self.receipt, dataclasses.replace(self.before, **changes))


@pytest.fixture
def case() -> Case:
    hub = Hub(profile=PROFILES["rotating"])
    hub.write("bob", b"1", b"2")
    hub.write("carol")
    before = Before(
        log=hub.log.copy(),
        last_client_seq=ClientSeq(2),
        profiles=(hub.profile.profile_id,),
        origin=hub.origin,
    )
    hub.write("bob")
    entry = hub.entries[-1]
    return Case(entry.msg, entry.receipt, before)


COID = Coid(bytes(32))

BREAKS: dict[str, tuple[str, Callable[[Case], Case]]] = {
    "ct_hash is another": ("I1", lambda c: c.with_msg(ct_hash=CtHash(flip(c.msg.ct_hash)))),
    "a ciphertext bit is flipped": ("I1", lambda c: c.with_msg(ciphertext=flip(c.msg.ciphertext, 45))),
    "leaf_hash is another message's": ("I2", lambda c: c.with_receipt(leaf_hash=LeafHash(bytes(32)))),
    "the receipt is of another label": ("I2", lambda c: c.with_receipt(label=Label(bytes(32)))),
    "mmr_root is another tree's": ("I3", lambda c: c.with_receipt(mmr_root=MmrRoot(bytes(32)))),
    "stream_seq skips": ("I3", lambda c: c.with_receipt(stream_seq=StreamSeq(5))),
    "stream_seq repeats": ("I3", lambda c: c.with_receipt(stream_seq=StreamSeq(3))),
    "the profile is not supported": ("I4", lambda c: c.after(profiles=(DEFAULT_PROFILE.profile_id,))),
    "att_root is another list's": (
        "I5",
        lambda c: c.after(attached=Attached(att_root=AttRoot(bytes(32)), coids=(COID,), sizes=(1,))),
    ),
    "attachments without att_root": (
        "I5",
        lambda c: c.after(attached=Attached(att_root=None, coids=(COID,), sizes=(1,))),
    ),
    "prev_ack is ahead of the stream": ("I6", lambda c: c.with_msg(prev_ack=StreamSeq(4))),
    "client_seq was accepted before": ("I8", lambda c: c.with_msg(client_seq=ClientSeq(2))),
    "client_seq starts at 0": (
        "I9",  # B16: from 1
        lambda c: c.with_msg(client_seq=ClientSeq(0)).after(last_client_seq=ClientSeq(-1)),
    ),
    "client_seq skips": ("I9", lambda c: c.with_msg(client_seq=ClientSeq(4))),
    "the message is larger than allowed": (
        "I11",
        lambda c: c.after(limits=DEFAULT_LIMITS.lowered({"max_msg_bytes": 100})),
    ),
    "the body is larger than allowed": (
        "I11",
        lambda c: c.after(limits=DEFAULT_LIMITS.lowered({"max_body_bytes": 8})),
    ),
    "the header is larger than allowed": (
        "I11",
        lambda c: c.after(limits=DEFAULT_LIMITS.lowered({"max_hdr_bytes": 8})),
    ),
    "the label is of an epoch gone by": ("I12", lambda c: c.with_receipt(hub_ts=UnixTime(BORN + 180))),
    "the label is of an epoch to come": ("I12", lambda c: c.with_receipt(hub_ts=UnixTime(BORN - 180))),
}


def test_an_honest_pair_holds(case: Case) -> None:
    pair = case.verify()
    assert (pair.msg, pair.receipt) == (case.msg, case.receipt)


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_invariant_is_named(case: Case, name: str) -> None:
    invariant, damage = BREAKS[name]
    with pytest.raises(InvariantError, match=r"§7|§14\.2") as caught:
        damage(case).verify()
    assert caught.value.invariant == invariant
    assert str(caught.value).startswith(f"{invariant}: ")


@pytest.mark.parametrize("name", BREAKS)
def test_such_a_pair_breaks_no_invariant_checked_before(case: Case, name: str) -> None:
    invariant, damage = BREAKS[name]
    broken = damage(case)
    pair = Pair(broken.msg.encode(), broken.receipt.encode(), broken.msg, broken.receipt)
    failing = [row for row, check in INVARIANTS if check(pair, broken.before) is not None]
    assert failing[0] == invariant
    assert set(failing) <= {invariant, "I3", "I9"}  # a repeated client_seq is not the next one either


def test_bytes_that_are_not_canonical_break_i10(case: Case) -> None:
    wire = case.receipt.encode()
    seq = case.receipt.stream_seq
    stretched = wire.replace(bytes([seq]) + b"\x58\x20", long_form(seq) + b"\x58\x20", 1)
    assert stretched != wire
    with pytest.raises(InvariantError, match=r"RECEIPT .core §4\.3.: not canonical CBOR") as caught:
        verify_pair(case.msg.encode(), stretched, case.before)
    assert caught.value.invariant == "I10"
    with pytest.raises(InvariantError, match="I10: MSG"):
        verify_pair(case.msg.encode() + b"\x00", wire, case.before)


def test_i10_compares_values_with_their_bytes_too(case: Case) -> None:
    check = dict(INVARIANTS)["I10"]
    pair = Pair(case.msg.encode() + b"\x00", case.receipt.encode(), case.msg, case.receipt)
    assert check(pair, case.before) == "not the canonical bytes"


def test_form_and_bounds_come_before_hashes_and_hashes_before_state() -> None:
    order = ["I10", "I11", "I1", "I2", "I4", "I5", "I6", "I8", "I9", "I12", "I3"]
    assert [name for name, _ in INVARIANTS] == order


FIRST_OF_TWO = [
    ("the body is larger than allowed", "a ciphertext bit is flipped"),
    ("a ciphertext bit is flipped", "leaf_hash is another message's"),
    ("leaf_hash is another message's", "the profile is not supported"),
    ("the profile is not supported", "att_root is another list's"),
    ("att_root is another list's", "prev_ack is ahead of the stream"),
    ("prev_ack is ahead of the stream", "client_seq was accepted before"),
    ("client_seq skips", "the label is of an epoch gone by"),
    ("the label is of an epoch gone by", "mmr_root is another tree's"),
]


@pytest.mark.parametrize(("first", "second"), FIRST_OF_TWO)
def test_of_two_broken_invariants_the_earlier_is_named(case: Case, first: str, second: str) -> None:
    (invariant, one), (_, other) = BREAKS[first], BREAKS[second]
    for both in (lambda c: one(other(c)), lambda c: other(one(c))):
        broken = both(case)
        pair = Pair(broken.msg.encode(), broken.receipt.encode(), broken.msg, broken.receipt)
        checks = dict(INVARIANTS)
        if all(checks[BREAKS[name][0]](pair, broken.before) for name in (first, second)):
            with pytest.raises(InvariantError) as caught:
                broken.verify()
            assert caught.value.invariant == invariant
            return
    pytest.fail("the two damages cancel each other")


def test_a_message_that_is_too_large_is_not_even_decoded(case: Case) -> None:
    limits = DEFAULT_LIMITS.lowered({"max_msg_bytes": 100})
    with pytest.raises(InvariantError, match="MSG of 101 bytes exceeds 100") as caught:
        verify_pair(b"\xff" * 101, b"", case.after(limits=limits).before)
    assert caught.value.invariant == "I11"
    with pytest.raises(InvariantError, match="I10"):
        verify_pair(b"\xff" * 100, b"", case.after(limits=limits).before)


def _without_log(case: Case) -> Case:
    return case.after(log=None, last_stream_seq=StreamSeq(case.before.size))


def test_where_proofs_stand_in_the_logs_place_its_root_is_not_judged(case: Case) -> None:
    _without_log(case).verify()
    _without_log(case.with_receipt(mmr_root=MmrRoot(bytes(32)))).verify()


@pytest.mark.parametrize(
    ("invariant", "damage"),
    [
        pytest.param("I3", lambda c: c.with_receipt(stream_seq=StreamSeq(5)), id="stream_seq skips"),
        pytest.param("I6", lambda c: c.with_msg(prev_ack=StreamSeq(4)), id="prev_ack is ahead"),
    ],
)
def test_without_the_log_positions_still_count(
    case: Case, invariant: str, damage: Callable[[Case], Case]
) -> None:
    with pytest.raises(InvariantError) as caught:
        _without_log(damage(case)).verify()
    assert caught.value.invariant == invariant


def test_before_the_first_entry_there_is_nothing() -> None:
    assert Before(last_client_seq=ClientSeq(0), profiles=()).size == 0


def test_i7_is_the_hubs_and_i13_is_no_property_of_a_pair() -> None:
    assert {name for name, _ in INVARIANTS} == {f"I{n}" for n in range(1, 13)} - {"I7"}


def test_attachments_that_match_hold_i5(case: Case) -> None:
    case.after(attached=Attached(att_root=att_root([COID]), coids=(COID,), sizes=(1,))).verify()
    case.after(attached=Attached(att_root=None, coids=(), sizes=())).verify()


def test_a_label_within_the_skew_holds_i12(case: Case) -> None:
    case.with_receipt(hub_ts=UnixTime(BORN + 60)).verify()


def test_what_a_verifier_cannot_know_it_does_not_judge(case: Case) -> None:
    # H4: without the stream, no label can be derived, so I12 cannot be judged.
    case.with_receipt(hub_ts=UnixTime(BORN + 10_000)).after(origin=None).verify()


def test_the_log_before_is_left_as_it_was(case: Case) -> None:
    size = case.before.log.size
    case.verify()
    assert case.before.log.size == size


@pytest.mark.parametrize("epoch_sec", [1, 2, 60])
def test_at_the_end_of_time_i12_still_names_itself(case: Case, epoch_sec: int) -> None:
    origin = dataclasses.replace(case.before.origin, epoch_sec=epoch_sec)
    last = case.after(origin=origin).with_receipt(hub_ts=UnixTime(2**64 - 1))
    with pytest.raises(InvariantError) as refusal:
        last.verify()
    assert refusal.value.invariant == "I12"
