"""The client against a simulated hub: sending, reading, falling behind, crashing, being lied to (§9)."""

import dataclasses
import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from veen_core import (
    DEFAULT_LIMITS,
    PROFILES,
    Checkpoint,
    ClientId,
    Entry,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    Msg,
    Receipt,
    StreamSeq,
    VeenError,
    mint,
    verify_evidence,
)
from veen_core.cap import Rate
from veen_core.client import Gap, LabelClient, Trust
from veen_core.client_state import MAX_STALLS, ClientBounds, ClientState, RatchetKey
from veen_core.entry import FLAG_AUTHORIZE
from veen_core.equivocation import Statement, evidence_of
from veen_core.errors import (
    CapError,
    CheckpointError,
    DecodeError,
    DivergenceError,
    IdentityError,
    InvariantError,
    ProofError,
    SignatureError,
    StateError,
    UnprovenError,
    VerificationError,
)
from veen_core.hashing import H, u64be
from veen_core.ids import ClientSeq, KeyId, ProfileId, UnixTime
from veen_core.log_verifier import MAX_WRITERS

from .simulator import BORN, READER, STREAM, Hub, Person, flip, person, seal, signing_key, trust_in


@contextmanager
def refusing(
    who: Person, error: type[VeenError], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[VeenError]]:
    """The step raises ``error``, and the state is byte for byte what it was before."""
    before = who.state.encode()
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert who.state.encode() == before, "a method that raises must leave the state alone"


# --- sending (§9 Submit, spec-1 §9)


def test_a_fresh_client_starts_at_client_seq_1_and_prev_ack_0(alice: Person) -> None:
    binding = alice.client.next_binding(BORN)  # B16
    assert (binding.client_seq, binding.prev_ack) == (1, 0)
    assert binding.label == alice.hub.label
    assert binding.auth_ref is None


def test_a_receipt_settles_the_message_and_moves_prev_ack(alice: Person) -> None:
    alice.send()
    assert alice.state.pending == ()
    assert alice.state.last_stream_seq == 1
    binding = alice.client.next_binding(BORN)
    assert (binding.client_seq, binding.prev_ack) == (2, 1)


def test_the_verified_prefix_follows_the_hub_receipt_by_receipt(alice: Person) -> None:
    for _ in range(5):
        alice.send()
        assert alice.state.peaks == alice.hub.log.peaks
        assert alice.state.head == alice.hub.receipt(alice.state.last_stream_seq)


def test_pipelined_messages_are_settled_one_by_one_in_order(alice: Person) -> None:
    sent = [alice.submit(body) for body in (b"one", b"two", b"three")]
    assert alice.client.unanswered == tuple(sent)
    receipts = [alice.hub.append(msg) for msg in sent]
    for done, receipt in enumerate(receipts, start=1):
        assert alice.client.accept_receipt(receipt) is None
        assert alice.client.unanswered == tuple(sent[done:])
    assert alice.client.next_binding(BORN).prev_ack == 3


def test_pipelined_messages_share_the_prev_ack_that_was_verified_when_they_were_sealed(alice: Person) -> None:
    alice.send()
    assert [alice.submit(body).prev_ack for body in (b"a", b"b")] == [1, 1]


def test_a_receipt_that_overtook_another_waits_for_it(alice: Person) -> None:
    first, second = (alice.hub.append(alice.submit(body)) for body in (b"one", b"two"))
    with refusing(alice, StateError, "client_seq 1 has no receipt yet; accept its receipt first"):
        alice.client.accept_receipt(second)
    with refusing(alice, StateError, "accept its receipt first"):
        alice.client.catch_up(second, alice.hub.proof(2), None)
    assert alice.client.accept_receipt(first) is None
    assert alice.client.accept_receipt(second) is None


def test_the_binding_contains_the_auth_ref(alice: Person) -> None:
    token = mint(signing_key("admin"), alice.state.client_id, [STREAM], ttl=60)
    assert alice.client.next_binding(BORN, token.auth_ref).auth_ref == token.auth_ref


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"client_seq": 2}, id="a later client_seq"),
        pytest.param({"label": Label(bytes(32))}, id="another label"),
        pytest.param({"client_id": ClientId(bytes(32))}, id="another client_id"),
        pytest.param({"profile_id": ProfileId(bytes(32))}, id="another profile"),
    ],
)
def test_only_the_next_message_can_be_submitted(alice: Person, changes: dict[str, object]) -> None:
    msg = alice.compose()
    with refusing(alice, StateError, "not the next one"):
        alice.client.submitted(dataclasses.replace(msg, **changes))


def test_a_message_with_prev_ack_beyond_the_prefix_cannot_be_submitted(alice: Person) -> None:
    msg = alice.compose()
    with refusing(alice, StateError, "prev_ack 1 is ahead of the verified prefix"):
        alice.client.submitted(dataclasses.replace(msg, prev_ack=StreamSeq(1)))


def test_the_same_message_cannot_be_submitted_twice(alice: Person) -> None:
    msg = alice.submit()
    with refusing(alice, StateError):
        alice.client.submitted(msg)


# --- crashing between submitted and receipt (RESYNC0.4)


def test_after_a_crash_the_exact_bytes_are_there_to_resend(alice: Person) -> None:
    alice.send()
    sent = [alice.submit(b"one"), alice.submit(b"two")]
    again = alice.restarted()
    assert again.client.unanswered == tuple(sent)
    assert [m.encode() for m in again.client.unanswered] == [m.encode() for m in sent]
    for msg in again.client.unanswered:
        assert again.client.accept_receipt(again.hub.append(msg)) is None
    assert again.state.pending == ()


def test_after_a_crash_a_message_that_arrived_is_settled_by_reading(alice: Person) -> None:
    alice.hub.append(alice.submit())  # the receipt was lost
    again = alice.restarted()
    again.read()
    assert again.state.pending == ()
    assert again.client.next_binding(BORN).client_seq == 2


@pytest.mark.parametrize("moment", ["fresh", "pending", "settled", "rotated"])
def test_the_state_comes_back_from_its_bytes_unchanged(alice: Person, moment: str) -> None:
    if moment != "fresh":
        alice.send()
        alice.submit()
    if moment in ("settled", "rotated"):
        alice.read()
        alice.client.refused()
    if moment == "rotated":
        alice.client.rotate(ClientId(signing_key("alice-2").public), BORN)
    wire = alice.state.encode()
    assert ClientState.decode(wire) == alice.state
    assert ClientState.decode(wire).encode() == wire


def test_a_state_whose_peaks_do_not_fit_its_size_is_refused(alice: Person) -> None:
    alice.send()
    damaged = dataclasses.replace(alice.state, peaks=())
    with pytest.raises(ProofError, match="1 leaves has 1 peaks, not 0"):
        LabelClient(damaged, alice.client.trust)


# --- being refused (§8.2)


def test_a_refusal_frees_the_client_seq(alice: Person) -> None:
    alice.send()
    alice.submit()
    alice.client.refused()
    assert alice.state.pending == ()
    assert alice.client.next_binding(BORN).client_seq == 2
    alice.send()


def test_a_refusal_drops_the_messages_pending_after_it(alice: Person) -> None:
    # client_seq is strictly +1 (I9): if one is refused, none after it can be accepted.
    sent = [alice.submit(body) for body in (b"one", b"two", b"three")]
    assert alice.client.refused() == tuple(sent)  # to be sealed anew
    assert alice.state.pending == ()
    assert alice.client.next_binding(BORN).client_seq == 1


def test_a_refusal_without_a_pending_message_is_an_error(alice: Person) -> None:
    with refusing(alice, StateError, "no MSG is pending"):
        alice.client.refused()


# --- falling behind


@pytest.fixture
def behind(alice: Person) -> tuple[Person, Receipt]:
    """Alice verified one entry; others wrote, and her second message became entry 4."""
    alice.send()
    msg = alice.submit(b"late")
    alice.hub.write("bob", b"x", b"y")
    return alice, alice.hub.append(msg)


def test_a_receipt_beyond_the_verified_prefix_is_a_gap_and_changes_nothing(
    behind: tuple[Person, Receipt],
) -> None:
    alice, receipt = behind
    before = alice.state.encode()
    assert alice.client.accept_receipt(receipt) == Gap(StreamSeq(1), StreamSeq(4))
    assert alice.state.encode() == before


def test_a_gap_is_closed_by_reading_and_the_own_message_is_settled_by_it(
    behind: tuple[Person, Receipt],
) -> None:
    alice, _ = behind
    alice.read()
    assert alice.state.pending == ()
    assert alice.state.last_stream_seq == 4
    assert alice.state.head == alice.hub.receipt(4)


def test_a_gap_is_closed_by_reading_up_to_the_own_message(behind: tuple[Person, Receipt]) -> None:
    alice, receipt = behind
    alice.client.accept_page(alice.hub.page(2, 3))
    assert alice.client.accept_receipt(receipt) is None
    assert alice.state.last_stream_seq == 4


def test_a_gap_is_closed_by_proofs_without_reading(behind: tuple[Person, Receipt]) -> None:
    alice, receipt = behind
    alice.client.catch_up(receipt, alice.hub.proof(4), alice.hub.consistency(1, 4))
    assert alice.state.pending == ()
    assert alice.state.peaks == alice.hub.log.peaks
    alice.send()


def test_the_first_receipt_needs_no_consistency_proof(alice: Person) -> None:
    alice.hub.write("bob", b"x", b"y")
    receipt = alice.hub.append(alice.submit())
    assert alice.client.accept_receipt(receipt) == Gap(StreamSeq(0), StreamSeq(3))
    alice.client.catch_up(receipt, alice.hub.proof(3), None)
    assert alice.state.last_stream_seq == 3


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(None, id="none"), pytest.param((1, 3), id="short"), pytest.param((2, 4), id="late")],
)
def test_catching_up_needs_a_consistency_proof_from_prefix_to_receipt(
    behind: tuple[Person, Receipt], sizes: tuple[int, int] | None
) -> None:
    alice, receipt = behind
    consistency = alice.hub.consistency(*sizes) if sizes else None
    with refusing(alice, StateError, "needs a consistency proof from 1 to 4"):
        alice.client.catch_up(receipt, alice.hub.proof(4), consistency)


def test_catching_up_wants_the_proof_of_the_message_itself(behind: tuple[Person, Receipt]) -> None:
    alice, receipt = behind
    with refusing(alice, ProofError, "leaf_hash"):
        alice.client.catch_up(receipt, alice.hub.proof(3), alice.hub.consistency(1, 4))


def test_catching_up_drops_all_writers(alice: Person) -> None:
    alice.hub.write("bob")
    alice.read()  # bob is at 1
    msg = alice.submit()
    alice.hub.write("bob")  # bob's 2 is never read
    receipt = alice.hub.append(msg)
    alice.client.catch_up(receipt, alice.hub.proof(3), alice.hub.consistency(1, 3))
    alice.hub.write("bob")
    alice.read()  # bob's 3 does not follow 1, and that is nobody's fault
    assert alice.state.last_stream_seq == 4


# --- confirming what was jumped over


@pytest.fixture
def jumped(alice: Person) -> tuple[Person, Receipt]:
    """Alice's message is entry 2; she resynced to entry 4 and never got its receipt."""
    msg = alice.submit()
    alice.hub.write("bob")
    receipt = alice.hub.append(msg)
    alice.hub.write("bob", b"x", b"y")
    alice.client.resync(*_from_checkpoint(alice.hub, 4))
    return alice, receipt


def test_a_message_that_was_jumped_over_is_confirmed_by_proofs(jumped: tuple[Person, Receipt]) -> None:
    alice, receipt = jumped
    rk = alice.state.rk
    with refusing(alice, StateError, "within the verified prefix; call confirm"):
        alice.client.accept_receipt(receipt)
    with refusing(alice, StateError, "within the verified prefix; call confirm"):
        alice.client.catch_up(receipt, alice.hub.proof(2), None)
    alice.client.confirm(receipt, alice.hub.proof(2), alice.hub.consistency(2, 4))
    assert alice.state.pending == ()
    assert alice.state.last_stream_seq == 4
    assert alice.state.rk == rk.after(StreamSeq(2))
    with refusing(alice, StateError, "answers no pending"):
        alice.client.confirm(receipt, alice.hub.proof(2), alice.hub.consistency(2, 4))


def test_a_message_at_the_end_of_the_prefix_is_confirmed_by_its_inclusion_alone(alice: Person) -> None:
    receipt = alice.hub.append(alice.submit())
    alice.client.resync(*_from_checkpoint(alice.hub, 1))
    alice.client.confirm(receipt, alice.hub.proof(1))
    assert alice.state.pending == ()


def test_a_message_beyond_the_prefix_is_not_confirmed(alice: Person) -> None:
    receipt = alice.hub.append(alice.submit())
    with refusing(alice, StateError, "beyond the verified prefix; call accept_receipt"):
        alice.client.confirm(receipt, alice.hub.proof(1))


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(None, id="none"), pytest.param((2, 3), id="short"), pytest.param((1, 4), id="early")],
)
def test_a_confirmation_needs_a_consistency_proof_from_the_receipts_tree(
    jumped: tuple[Person, Receipt], sizes: tuple[int, int] | None
) -> None:
    alice, receipt = jumped
    consistency = alice.hub.consistency(*sizes) if sizes else None
    with refusing(alice, StateError, "needs a consistency proof from 2 to 4"):
        alice.client.confirm(receipt, alice.hub.proof(2), consistency)


def test_a_confirmation_wants_the_proof_in_the_receipts_own_tree(jumped: tuple[Person, Receipt]) -> None:
    alice, receipt = jumped
    with refusing(alice, ProofError):
        alice.client.confirm(receipt, alice.hub.proof(2, tree_size=4), alice.hub.consistency(2, 4))


def test_a_confirmation_from_another_history_is_a_divergence(alice: Person) -> None:
    """The receipt alone proves nothing about the prefix: its tree must be a part of it."""
    msg = alice.submit()
    fork = alice.hub.fork(0)
    alice.hub.write("bob", b"1", b"2", b"3")
    alice.client.resync(*_from_checkpoint(alice.hub, 2))
    receipt = fork.append(msg)
    with refusing(alice, DivergenceError, "mmr_consistency") as caught:
        alice.client.confirm(receipt, fork.proof(1), alice.hub.consistency(1, 2))
    assert caught.value.shown == receipt.encode()


def test_a_confirmation_by_another_tree_of_the_prefixs_size_is_a_divergence(alice: Person) -> None:
    msg = alice.submit()
    fork = alice.hub.fork(0)
    alice.hub.write("bob")
    alice.client.resync(*_from_checkpoint(alice.hub, 1))
    receipt = fork.append(msg)
    with refusing(alice, DivergenceError, "a tree of 1 entries that differs"):
        alice.client.confirm(receipt, fork.proof(1))


# --- every own receipt is held to the invariants (§7)


@contextmanager
def breaking(who: Person, invariant: str) -> Iterator[None]:
    with refusing(who, InvariantError) as caught:
        yield
    assert isinstance(caught.value, InvariantError)
    assert caught.value.invariant == invariant


def _answer(who: Person, receipt: Receipt, way: str) -> None:
    """Pass a receipt to each of the three methods that accept one."""
    seq = receipt.stream_seq
    match way:
        case "accept_receipt":
            who.client.accept_receipt(receipt)
        case "catch_up":
            who.client.catch_up(receipt, who.hub.proof(seq), None)
        case _:
            who.client.confirm(receipt, who.hub.proof(seq))


WAYS = ["accept_receipt", "catch_up", "confirm"]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_placed_before_its_prev_ack_breaks_i6(alice: Person, way: str) -> None:
    alice.hub.write("bob", b"1", b"2")
    alice.read()
    msg = alice.submit()  # prev_ack 2
    receipt = alice.hub.fork(1).append(msg)
    alice.hub.write("bob")
    alice.read()  # the head is elsewhere, and says nothing of place 2
    with breaking(alice, "I6"):
        _answer(alice, receipt, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_admitted_after_its_epoch_breaks_i12(rotating_hub: Hub, way: str) -> None:
    alice = person("alice", rotating_hub)
    msg = alice.submit()
    rotating_hub.now = UnixTime(BORN + 240)
    with breaking(alice, "I12"):
        _answer(alice, rotating_hub.append(msg), way)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_beyond_the_hubs_limits_breaks_i11(alice: Person, way: str) -> None:
    receipt = alice.hub.append(alice.submit())
    limits = DEFAULT_LIMITS.lowered({"max_body_bytes": 8})
    alice.client.trust = dataclasses.replace(alice.client.trust, limits=limits)
    with breaking(alice, "I11"):
        _answer(alice, receipt, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_was_damaged_in_the_state_breaks_i1(alice: Person, way: str) -> None:
    msg = alice.compose()
    damaged = dataclasses.replace(msg, ciphertext=flip(msg.ciphertext, 50))
    alice.client.state = dataclasses.replace(alice.state, client_seq=1, pending=(damaged.encode(),))
    with breaking(alice, "I1"):
        _answer(alice, alice.hub.append(damaged), way)


def test_a_message_without_a_client_seq_breaks_i9(alice: Person) -> None:
    msg = dataclasses.replace(alice.compose(), client_seq=ClientSeq(0))
    alice.client.state = dataclasses.replace(alice.state, pending=(msg.encode(),))
    with breaking(alice, "I9"):
        alice.client.accept_receipt(alice.hub.append(msg))


# --- its own messages on a page


def test_an_own_message_that_the_state_does_not_know_of_uses_up_its_client_seq(alice: Person) -> None:
    """After a restored backup, own entries in the log move client_seq on."""
    backup = alice.restarted()
    alice.send(b"one")
    alice.send(b"two")
    backup.read()
    assert backup.state.client_seq == 2
    assert backup.client.next_binding(BORN).client_seq == 3
    backup.send()


def test_a_client_seq_used_by_another_message_asks_for_another_client_id(alice: Person) -> None:
    twin = alice.restarted()
    alice.send(b"one")
    mine = twin.submit(b"another")
    with refusing(twin, StateError, "client_seq 1 was used by another MSG; rotate client_id"):
        twin.read()
    assert twin.client.refused() == (mine,)
    twin.client.rotate(ClientId(signing_key("twin").public), BORN)
    twin.name = "twin"
    twin.read()
    assert (twin.state.last_stream_seq, twin.state.client_seq) == (1, 0)
    twin.send(b"another")


def test_pages_read_again_after_a_rewind_do_not_change_client_seq(alice: Person) -> None:
    for _ in range(3):
        alice.send()
    alice.client.resync(*_from_checkpoint(alice.hub, 1), alice.hub.consistency(1, 3))
    alice.read()
    assert alice.client.next_binding(BORN).client_seq == 4


# --- reading (§9 Read)


def test_reading_verifies_the_messages_of_all_writers_and_the_root(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2")
    alice.hub.write("carol")
    alice.client.accept_page(alice.hub.page(1, 2))
    alice.client.accept_page(alice.hub.page(3))
    assert alice.state.peaks == alice.hub.log.peaks
    assert alice.hub.entries[0].msg.open(READER).body == b"1"


def test_an_empty_page_changes_nothing(alice: Person) -> None:
    before = alice.state.encode()
    alice.client.accept_page([])
    assert alice.state.encode() == before


def test_a_message_accepted_by_its_receipt_counts_when_the_next_is_read(alice: Person) -> None:
    alice.hub.append(alice.submit())
    alice.read()  # client_seq 1 seen on a page
    alice.send()  # client_seq 2 by its receipt
    msg = alice.submit()
    alice.hub.write("bob")
    alice.hub.append(msg)
    alice.read()  # client_seq 3 on a page again: follows 2
    assert alice.state.pending == ()


def reader_of_tokens() -> Person:
    """Reads the control label, which has no stream (H5)."""
    hub = Hub(control=True)
    return person("alice", hub, trust=dataclasses.replace(trust_in(hub), origin=None))


def test_entries_of_the_control_label_are_read_like_any_other() -> None:
    alice = reader_of_tokens()
    for ttl in (60, 61):
        alice.hub.authorize(mint(signing_key("admin"), alice.state.client_id, [STREAM], ttl=ttl))
    alice.read()
    assert alice.state.last_stream_seq == 2


def test_a_token_outside_the_control_label_is_refused(alice: Person) -> None:
    alice.hub.authorize(mint(signing_key("admin"), alice.state.client_id, [STREAM], ttl=60))
    with refusing(alice, VerificationError, "outside the hub's control label"):
        alice.read()


def test_a_token_that_its_issuer_did_not_sign_is_refused() -> None:
    alice = reader_of_tokens()
    token = mint(signing_key("admin"), alice.state.client_id, [STREAM], ttl=60)
    (link,) = token.sig_chain
    alice.hub.authorize(dataclasses.replace(token, sig_chain=(type(link)(bytes(64)),)))
    with refusing(alice, CapError):
        alice.read()


# --- whose numbers came before (I8, I9, B16)


def test_an_own_message_that_is_shown_a_second_time_is_refused(alice: Person) -> None:
    msg = alice.submit()
    alice.client.accept_receipt(alice.hub.append(msg))
    alice.hub.append(msg)
    for client in (alice, alice.restarted()):
        with refusing(client, InvariantError, "I[89]"):
            client.read()


def test_own_messages_are_read_again_after_a_rewind(alice: Person) -> None:
    for body in (b"one", b"two", b"three"):
        alice.send(body)
    last = alice.hub.receipt(1).leaf_hash
    alice.client.resync(alice.hub.checkpoint(1), last, alice.hub.proof(1), alice.hub.consistency(1, 3))
    alice.read()
    assert alice.state.last_stream_seq == 3


def test_a_writers_first_number_is_1_where_the_log_was_read_from_its_beginning(alice: Person) -> None:
    binding = dataclasses.replace(alice.hub.compose("bob").binding, client_seq=ClientSeq(5))
    alice.hub.append(seal(signing_key("bob"), binding))
    with refusing(alice, InvariantError, "I9"):
        alice.read()


def test_a_state_with_inconsistent_parts_is_refused(alice: Person) -> None:
    alice.send()
    alice.submit()
    state, trust = alice.state, alice.client.trust
    assert state.head is not None
    other = alice.hub.compose("bob").encode()
    for changes in (
        {"pending": (other,)},
        {"pending": state.pending * 2},
        {"client_seq": ClientSeq(1)},
        {"head": dataclasses.replace(state.head, label=Label(bytes(32)))},
        {"head": dataclasses.replace(state.head, mmr_root=MmrRoot(bytes(32)))},
    ):
        with pytest.raises(StateError, match="state"):
            LabelClient(dataclasses.replace(state, **changes), trust)


def test_a_message_that_the_hub_would_refuse_does_not_become_pending(alice: Person) -> None:
    alice.send()
    alice.submit()
    msg = alice.compose()
    with refusing(alice, SignatureError):
        alice.client.submitted(dataclasses.replace(msg, sig=type(msg.sig)(bytes(64))))
    behind = seal(alice.key, dataclasses.replace(msg.binding, prev_ack=StreamSeq(0)))
    with refusing(alice, StateError, "prev_ack 0 is less than 1"):
        alice.client.submitted(behind)
    alice.client.bounds = ClientBounds(max_msgs_per_client_id_per_label=2)
    with refusing(alice, StateError, "rotate"):
        alice.client.submitted(msg)


def test_an_invalid_consistency_proof_is_not_yet_a_contradiction(alice: Person) -> None:
    """A proof has no signature, so it may have been damaged in transit."""
    alice.send()
    alice.hub.write("bob", b"1", b"2")
    receipt = alice.hub.append(alice.submit())
    good = alice.hub.consistency(1, 4)
    damaged = dataclasses.replace(good, peaks_from=(type(good.peaks_from[0])(bytes(32)),))
    with refusing(alice, UnprovenError):
        alice.client.catch_up(receipt, alice.hub.proof(4), damaged)
    alice.client.catch_up(receipt, alice.hub.proof(4), good)


def test_a_divergence_carries_the_two_receipts_that_contradict_each_other(alice: Person) -> None:
    alice.hub.now = UnixTime(BORN + 100)
    alice.hub.write("bob")
    alice.hub.now = UnixTime(BORN + 99)
    alice.hub.write("bob")
    with refusing(alice, DivergenceError, "hub_ts goes back") as caught:
        alice.read()
    first, second = (entry.receipt_bytes for entry in alice.hub.page(1))
    assert isinstance(caught.value, DivergenceError)
    assert (caught.value.held, caught.value.shown) == (first, second)


def test_a_checkpoint_that_a_client_started_from_is_evidence_too(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2")
    fork = alice.hub.fork(1)
    fork.write("bob", b"another", b"history")
    checkpoint = alice.hub.checkpoint(2)
    alice.client.resync(checkpoint, alice.hub.receipt(2).leaf_hash, alice.hub.proof(2))
    for client in (alice, alice.restarted()):
        with refusing(client, DivergenceError) as caught:
            client.client.accept_page(fork.page(3))
        assert isinstance(caught.value, DivergenceError)
        assert caught.value.held == checkpoint.encode()


def test_writers_are_followed_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WRITERS == 4_096
    monkeypatch.setattr("veen_core.label_prefix.MAX_WRITERS", 2)
    alice = person("alice", Hub())
    for who in ("bob", "carol", "dave"):
        alice.hub.write(who)
        alice.read()

    def leap(who: str) -> list[Entry]:
        fork = alice.hub.fork(3)
        binding = dataclasses.replace(fork.compose(who).binding, client_seq=9)
        fork.append(seal(signing_key(who), binding))
        return fork.page(4)

    with refusing(alice, InvariantError, "I9"):
        alice.client.accept_page(leap("carol"))
    alice.client.accept_page(leap("bob"))  # the longest unseen: forgotten, so nothing to compare with


def test_a_page_that_raises_leaves_the_writers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that evicts a writer and then contradicts the client's own pending MSG changes nothing."""
    monkeypatch.setattr("veen_core.label_prefix.MAX_WRITERS", 2)
    hub = Hub()
    alice = person("alice", hub)
    alice.submit(b"pending")
    for who in ("bob", "carol", "dave"):
        hub.write(who)
    hub.append(hub.compose("alice", b"by another process"))
    with refusing(alice, StateError, "was used by another MSG"):
        alice.read()
    fork = Hub()
    binding = dataclasses.replace(fork.compose("erin").binding, client_seq=ClientSeq(2))
    fork.append(seal(signing_key("erin"), binding))
    with refusing(alice, InvariantError, "I9: client_seq 2 does not follow 0"):
        alice.client.accept_page(fork.page(1))


def _replaced(entry: Entry, **changes: object) -> Entry:
    return dataclasses.replace(entry, **changes)


def _other_msg(hub: Hub) -> list[Entry]:
    """The hub shows another message than the one it signed for."""
    first, second = hub.page(1)
    return [_replaced(first, msg_bytes=second.msg_bytes), second]


def _unsigned_msg(hub: Hub) -> list[Entry]:
    first = hub.page(1)[0]
    msg = first.msg
    return [_replaced(first, msg_bytes=dataclasses.replace(msg, sig=flip(msg.sig)).encode())]


def _damaged_ciphertext(hub: Hub) -> list[Entry]:
    first = hub.page(1)[0]
    msg = first.msg
    return [
        _replaced(first, msg_bytes=dataclasses.replace(msg, ciphertext=flip(msg.ciphertext, 50)).encode())
    ]


def _forged_receipt(hub: Hub) -> list[Entry]:
    first = hub.page(1)[0]
    receipt = dataclasses.replace(first.receipt, hub_ts=first.receipt.hub_ts + 1)
    return [_replaced(first, receipt_bytes=receipt.encode())]


def _unreadable_receipt(hub: Hub) -> list[Entry]:
    first = hub.page(1)[0]
    return [_replaced(first, receipt_bytes=first.receipt_bytes + b"\x00")]


def _swapped(hub: Hub) -> list[Entry]:
    return hub.page(1)[::-1]


def _missing_first(hub: Hub) -> list[Entry]:
    return hub.page(2)


def _mislabelled(hub: Hub) -> list[Entry]:
    return [_replaced(hub.page(1)[0], label=Label(bytes(32)))]


def _misnumbered(hub: Hub) -> list[Entry]:
    return [_replaced(hub.page(1)[0], stream_seq=StreamSeq(7))]


def _of_another_label(hub: Hub) -> list[Entry]:
    entry = hub.page(1)[0]
    return [_replaced(entry, receipt_bytes=hub.forged(entry.receipt, label=Label(bytes(32))).encode())]


def _disguised_as_a_token(hub: Hub) -> list[Entry]:
    """With the control flag set, a MSG that no leaf commits to would go unchecked (H5)."""
    entry = hub.page(1)[0]
    stranger = Hub(name="elsewhere").compose("mallory").encode()
    return [_replaced(entry, msg_bytes=stranger, flags=FLAG_AUTHORIZE)]


def _another_token(hub: Hub) -> list[Entry]:
    """A control entry that shows another token than the leaf commits to (H5)."""
    entry = hub.page(1)[0]
    token = mint(signing_key("mallory"), ClientId(bytes(32)), [STREAM], ttl=9, rate=Rate(per_sec=1, burst=1))
    return [_replaced(entry, msg_bytes=token.encode(), flags=FLAG_AUTHORIZE)]


def _too_far_ahead(hub: Hub) -> list[Entry]:
    fork = hub.fork(0)
    binding = dataclasses.replace(fork.compose("bob").binding, prev_ack=StreamSeq(5))
    fork.append(seal(signing_key("bob"), binding))
    return fork.page(1)


@pytest.mark.parametrize(
    ("page", "error", "match"),
    [
        pytest.param(_other_msg, InvariantError, "I2", id="a swapped message"),
        pytest.param(_unsigned_msg, SignatureError, "MSG.sig", id="a message its writer did not sign"),
        pytest.param(_damaged_ciphertext, InvariantError, "I1", id="a damaged ciphertext"),
        pytest.param(_forged_receipt, SignatureError, "hub_sig", id="a receipt the hub did not sign"),
        pytest.param(_unreadable_receipt, DecodeError, "RECEIPT", id="a receipt that does not decode"),
        pytest.param(_swapped, StateError, "entry 2 in place of 1", id="entries out of order"),
        pytest.param(_missing_first, StateError, "entry 2 in place of 1", id="a hole"),
        pytest.param(_mislabelled, StateError, "entry has label", id="an entry of another label"),
        pytest.param(
            _misnumbered, StateError, "entry 7 in place of 1", id="an entry that misstates its place"
        ),
        pytest.param(_of_another_label, StateError, "entry has label", id="a receipt of another label"),
        pytest.param(
            _disguised_as_a_token,
            InvariantError,
            "I10: cap_token",
            id="a message disguised as a control entry",
        ),
        pytest.param(_another_token, VerificationError, "token", id="a control entry with another token"),
        pytest.param(_too_far_ahead, InvariantError, "I6", id="a prev_ack ahead of the stream"),
    ],
)
def test_a_page_with_one_bad_entry_is_refused_as_a_whole(
    alice: Person, page: Callable[[Hub], list[Entry]], error: type[VeenError], match: str
) -> None:
    alice.hub.write("bob", b"1", b"2")
    with refusing(alice, error, match):
        alice.client.accept_page(page(alice.hub))
    alice.read()
    assert alice.state.last_stream_seq == 2


def test_a_page_with_a_bad_last_entry_changes_nothing(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2", b"3")
    good = alice.hub.page(1, 2)
    bad = _replaced(alice.hub.page(3)[0], msg_bytes=good[0].msg_bytes)
    with refusing(alice, InvariantError):
        alice.client.accept_page([*good, bad])


def test_of_several_faults_on_a_page_the_first_is_reported(alice: Person) -> None:
    """Signatures of a page are verified together, but never after the faults of later entries."""
    alice.hub.write("bob", *(f"{n}".encode() for n in range(150)))
    honest = alice.hub.page(1, 150)

    def page(*changes: tuple[int, Callable[[Entry], Entry]]) -> list[Entry]:
        entries = list(honest)
        for at, change in changes:
            entries[at] = change(entries[at])
        return entries

    def unsigned(entry: Entry) -> Entry:
        return _replaced(entry, msg_bytes=flip(entry.msg_bytes, -1))

    def unreceipted(entry: Entry) -> Entry:
        return _replaced(entry, receipt_bytes=flip(entry.receipt_bytes, -1))

    def rewritten(entry: Entry) -> Entry:
        forged = alice.hub.forged(entry.receipt, mmr_root=MmrRoot(bytes(32)))
        return _replaced(entry, receipt_bytes=forged.encode())

    with refusing(alice, SignatureError, r"^MSG\.sig"):
        alice.client.accept_page(page((40, unsigned), (41, unreceipted), (42, rewritten)))
    with refusing(alice, SignatureError, r"^RECEIPT\.hub_sig at stream_seq 42"):
        alice.client.accept_page(page((41, unreceipted), (42, rewritten), (140, unsigned)))
    with refusing(alice, DivergenceError, "stream_seq 43"):
        alice.client.accept_page(page((42, rewritten), (43, unreceipted), (140, unsigned)))
    with refusing(alice, StateError, "in place of 44"):
        alice.client.accept_page([*honest[:43], *page((60, unsigned))[44:]])
    alice.client.accept_page(honest)
    assert alice.state.last_stream_seq == 150


# --- being lied to (§9 Resync)


def test_a_receipt_for_nothing_pending_is_refused(alice: Person) -> None:
    with refusing(alice, StateError, "answers no pending MSG"):
        alice.client.accept_receipt(alice.hub.write("bob")[0])


def test_a_receipt_of_a_stranger_is_refused(alice: Person) -> None:
    receipt = alice.hub.append(alice.submit(), key=signing_key("stranger"))
    with refusing(alice, SignatureError, "no key of the hub that was active"):
        alice.client.accept_receipt(receipt)


def test_a_receipt_of_another_label_is_refused(alice: Person) -> None:
    receipt = alice.hub.append(alice.submit())
    with refusing(alice, StateError, "receipt has label"):
        alice.client.accept_receipt(alice.hub.forged(receipt, label=Label(bytes(32))))


def test_a_forged_root_is_a_divergence_with_both_statements(alice: Person) -> None:
    held = alice.send()
    receipt = alice.hub.append(alice.submit())
    forged = alice.hub.forged(receipt, mmr_root=MmrRoot(bytes(32)))
    with refusing(alice, DivergenceError, "does not follow from the log before it") as caught:
        alice.client.accept_receipt(forged)
    assert caught.value.held == held.encode()
    assert caught.value.shown == forged.encode()
    assert alice.client.accept_receipt(receipt) is None


def test_a_divergence_at_first_contact_has_no_earlier_statement(alice: Person) -> None:
    receipt = alice.hub.append(alice.submit())
    with refusing(alice, DivergenceError) as caught:
        alice.client.accept_receipt(alice.hub.forged(receipt, mmr_root=MmrRoot(bytes(32))))
    assert caught.value.held == b""


def test_a_forged_root_on_a_page_is_a_divergence(alice: Person) -> None:
    alice.hub.write("bob")
    entry = alice.hub.page(1)[0]
    forged = alice.hub.forged(entry.receipt, mmr_root=MmrRoot(bytes(32)))
    with refusing(alice, DivergenceError, "I3") as caught:
        alice.client.accept_page([_replaced(entry, receipt_bytes=forged.encode())])
    assert caught.value.shown == forged.encode()


def test_a_forged_root_of_a_control_entry_is_a_divergence() -> None:
    alice = reader_of_tokens()
    alice.hub.authorize(mint(signing_key("admin"), alice.state.client_id, [STREAM], ttl=60))
    entry = alice.hub.page(1)[0]
    forged = alice.hub.forged(entry.receipt, mmr_root=MmrRoot(bytes(32)))
    with refusing(alice, DivergenceError, "does not follow"):
        alice.client.accept_page([_replaced(entry, receipt_bytes=forged.encode())])


@pytest.mark.parametrize("already_read", [0, 1], ids=["within a page", "after the head"])
def test_a_clock_that_goes_back_is_a_divergence(alice: Person, already_read: int) -> None:
    alice.hub.write("bob")
    alice.client.accept_page(alice.hub.page(1, already_read))
    alice.hub.now = UnixTime(BORN + 100)
    alice.hub.write("bob")
    alice.client.accept_page(alice.hub.page(already_read + 1, 2) if already_read else [])
    alice.hub.now = UnixTime(BORN + 99)  # H3
    alice.hub.write("bob")
    with refusing(alice, DivergenceError, "hub_ts goes back (from|between stream_seq 2 and 3)"):
        alice.read()


@pytest.mark.parametrize("way", ["accept_receipt", "catch_up"])
def test_a_clock_that_goes_back_in_an_own_receipt_is_a_divergence(alice: Person, way: str) -> None:
    alice.hub.now = UnixTime(BORN + 100)
    held = alice.send()
    msg = alice.submit()
    alice.hub.now = UnixTime(BORN + 99)
    receipt = alice.hub.append(msg)
    with refusing(alice, DivergenceError, "hub_ts goes back between stream_seq 1 and 2") as caught:
        _answer(alice, receipt, way)
    assert (caught.value.held, caught.value.shown) == (held.encode(), receipt.encode())
    alice.client.accept_receipt(alice.hub.forged(receipt, hub_ts=held.hub_ts))  # standing still is not


def test_a_receipt_before_the_head_must_not_have_a_later_hub_ts(alice: Person) -> None:
    msg = alice.submit()
    receipt = alice.hub.append(msg)
    alice.hub.write("bob")
    alice.client.resync(*_from_checkpoint(alice.hub, 1))
    alice.client.accept_page(alice.hub.page(2))  # the head is at 2
    late = alice.hub.forged(receipt, hub_ts=UnixTime(BORN + 1))
    with refusing(alice, DivergenceError, "hub_ts goes back between stream_seq 2 and 1"):
        alice.client.confirm(late, alice.hub.proof(1), alice.hub.consistency(1, 2))
    alice.client.confirm(receipt, alice.hub.proof(1), alice.hub.consistency(1, 2))


def test_a_page_read_again_is_a_wrong_page_and_no_divergence(alice: Person) -> None:
    for n in range(3):
        alice.hub.now = UnixTime(BORN + n)
        alice.hub.write("bob")
    alice.read()
    with refusing(alice, StateError, "entry 1 in place of 4"):
        alice.client.accept_page(alice.hub.page(1))


def test_two_receipts_for_one_stream_seq_give_evidence_against_the_hub(alice: Person) -> None:
    alice.send(b"one")
    alice.hub.write("bob")
    alice.read()  # head is bob's entry, at 2
    msg = alice.submit(b"two")
    fork = alice.hub.fork(1)
    receipt = fork.append(msg)  # the hub promises the same place again
    with refusing(alice, DivergenceError, "two receipts for stream_seq 2") as caught:
        alice.client.accept_receipt(receipt)
    hub_pk = alice.hub.hub_pk
    statements = [
        Statement(hub_pk=hub_pk, receipt=Receipt.decode(wire))
        for wire in (caught.value.held, caught.value.shown)
    ]
    evidence = evidence_of(*statements)
    verify_evidence(evidence, alice.hub.identity)
    assert evidence_of(*reversed(statements)) == evidence


def test_a_page_that_contradicts_the_head_is_evidence_too(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2")
    alice.read()
    alice.client.resync(*_from_checkpoint(alice.hub, 1), alice.hub.consistency(1, 2))
    fork = alice.hub.fork(1)
    fork.write("carol")
    with refusing(alice, DivergenceError, "two receipts for stream_seq 2") as caught:
        alice.client.accept_page(fork.page(2))
    assert Receipt.decode(caught.value.held).leaf_hash != Receipt.decode(caught.value.shown).leaf_hash


def test_another_root_over_the_heads_own_leaf_is_evidence_too(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2")
    alice.read()
    alice.client.resync(*_from_checkpoint(alice.hub, 1), alice.hub.consistency(1, 2))
    (entry,) = alice.hub.page(2)
    forged = alice.hub.forged(entry.receipt, mmr_root=MmrRoot(bytes(32)))
    with refusing(alice, DivergenceError, "the hub signed two receipts for stream_seq 2") as caught:
        alice.client.accept_page([_replaced(entry, receipt_bytes=forged.encode())])
    held, shown = (Receipt.decode(wire) for wire in (caught.value.held, caught.value.shown))
    assert held.leaf_hash == shown.leaf_hash
    hub_pk = alice.hub.hub_pk
    verify_evidence(
        evidence_of(Statement(hub_pk=hub_pk, receipt=held), Statement(hub_pk=hub_pk, receipt=shown)),
        alice.hub.identity,
    )


def test_a_rewritten_history_is_found_when_catching_up(alice: Person) -> None:
    alice.send()
    alice.send()
    msg = alice.submit()
    fork = alice.hub.fork(1)
    fork.write("mallory", b"1", b"2", b"3")
    receipt = fork.append(msg)
    with refusing(alice, DivergenceError, "mmr_consistency") as caught:
        alice.client.catch_up(receipt, fork.proof(5), fork.consistency(2, 5))
    assert caught.value.held == alice.hub.receipt(2).encode()
    assert caught.value.shown == receipt.encode()


# --- resynchronising from a checkpoint (RESYNC0.2)


def _from_checkpoint(hub: Hub, upto_seq: int) -> tuple[Checkpoint, LeafHash, object]:
    return hub.checkpoint(upto_seq), hub.receipt(upto_seq).leaf_hash, hub.proof(upto_seq)


def test_a_new_client_starts_from_a_checkpoint_and_reads_on(alice: Person) -> None:
    alice.hub.write("bob", *(bytes([n]) for n in range(6)))
    alice.client.resync(*_from_checkpoint(alice.hub, 5))
    assert alice.state.last_stream_seq == 5
    assert alice.state.checkpointed == 5
    assert alice.state.head is None
    alice.read()
    assert alice.state.peaks == alice.hub.log.peaks


def test_a_checkpoint_ahead_is_reached_by_a_consistency_proof(alice: Person) -> None:
    alice.send()
    alice.hub.write("bob", b"1", b"2", b"3")
    alice.client.resync(*_from_checkpoint(alice.hub, 4), alice.hub.consistency(1, 4))
    assert alice.state.peaks == alice.hub.log.peaks
    alice.send()


def test_a_checkpoint_ahead_without_a_consistency_proof_is_refused(alice: Person) -> None:
    alice.send()
    alice.hub.write("bob")
    with refusing(alice, StateError, "consistency proof from 1 to 2"):
        alice.client.resync(*_from_checkpoint(alice.hub, 2))


def test_a_checkpoint_at_the_verified_prefix_needs_no_proof_of_consistency(alice: Person) -> None:
    alice.send()
    alice.client.stalled()
    alice.client.resync(*_from_checkpoint(alice.hub, 1))
    assert (alice.state.last_stream_seq, alice.state.checkpointed, alice.state.stalls) == (1, 1, 0)


def test_another_tree_of_the_same_size_is_a_divergence(alice: Person) -> None:
    alice.send()
    alice.send()
    fork = alice.hub.fork(1)
    fork.write("mallory")
    with refusing(alice, DivergenceError, "a tree of 2 entries that differs") as caught:
        alice.client.resync(*_from_checkpoint(fork, 2))
    assert caught.value.held == alice.hub.receipt(2).encode()
    assert Checkpoint.decode(caught.value.shown) == fork.checkpoint(2)


def test_a_checkpoint_of_a_rewritten_history_is_a_divergence(alice: Person) -> None:
    alice.send()
    alice.send()
    fork = alice.hub.fork(1)
    fork.write("mallory", b"1", b"2")
    with refusing(alice, DivergenceError, "mmr_consistency"):
        alice.client.resync(*_from_checkpoint(fork, 3), fork.consistency(2, 3))


@pytest.fixture
def rewound(alice: Person) -> Person:
    """Alice verified four entries, and went back to a checkpoint at two."""
    for _ in range(4):
        alice.send()
    alice.client.resync(*_from_checkpoint(alice.hub, 2), alice.hub.consistency(2, 4))
    return alice


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(None, id="none"), pytest.param((2, 3), id="short"), pytest.param((1, 4), id="early")],
)
def test_a_rewind_needs_a_consistency_proof_from_the_checkpoint(
    alice: Person, sizes: tuple[int, int] | None
) -> None:
    for _ in range(4):
        alice.send()
    consistency = alice.hub.consistency(*sizes) if sizes else None
    with refusing(alice, StateError, "needs a consistency proof from 2 to 4"):
        alice.client.resync(*_from_checkpoint(alice.hub, 2), consistency)


def test_a_rewind_to_another_history_is_a_divergence(alice: Person) -> None:
    for _ in range(4):
        alice.send()
    fork = alice.hub.fork(1)
    fork.write("mallory")
    with refusing(alice, DivergenceError, "mmr_consistency") as caught:
        alice.client.resync(*_from_checkpoint(fork, 2), alice.hub.consistency(2, 4))
    assert caught.value.held == alice.hub.receipt(4).encode()
    assert Checkpoint.decode(caught.value.shown) == fork.checkpoint(2)


def test_a_second_rewind_is_measured_by_the_head_and_not_by_the_prefix(rewound: Person) -> None:
    with refusing(rewound, StateError, "needs a consistency proof from 3 to 4"):
        rewound.client.resync(*_from_checkpoint(rewound.hub, 3), rewound.hub.consistency(2, 3))
    rewound.client.resync(*_from_checkpoint(rewound.hub, 3), rewound.hub.consistency(3, 4))
    assert rewound.state.last_stream_seq == 3


def test_an_earlier_checkpoint_rewinds_and_the_entries_are_read_again(rewound: Person) -> None:
    assert rewound.state.last_stream_seq == 2
    assert rewound.state.head == rewound.hub.receipt(4)
    rewound.read()
    assert rewound.state.peaks == rewound.hub.log.peaks
    rewound.send()


def test_a_rewound_client_does_not_lower_its_prev_ack(rewound: Person) -> None:
    # §7: prev_ack MUST NOT decrease for a given (label, client_id).
    with refusing(rewound, StateError, "up to 4"):
        rewound.client.next_binding(BORN)
    rewound.client.accept_page(rewound.hub.page(3, 3))
    with refusing(rewound, StateError, "up to 4"):
        rewound.client.next_binding(BORN)
    rewound.read()
    assert rewound.client.next_binding(BORN).prev_ack == 4


def test_a_rewound_client_meets_its_head_again_or_diverges_by_reading(rewound: Person) -> None:
    fork = rewound.hub.fork(2)
    fork.write("mallory", b"1", b"2")
    with refusing(rewound, DivergenceError, "two receipts for stream_seq 4"):
        rewound.client.accept_page(fork.page(3))


def test_a_rewound_client_cannot_be_led_past_its_head_by_a_checkpoint(rewound: Person) -> None:
    fork = rewound.hub.fork(2)
    fork.write("mallory", b"1", b"2", b"3")
    with refusing(rewound, StateError, "consistency proof from 4 to 5"):
        rewound.client.resync(*_from_checkpoint(fork, 5), fork.consistency(2, 5))
    with refusing(rewound, DivergenceError):
        rewound.client.resync(*_from_checkpoint(fork, 5), fork.consistency(4, 5))
    with refusing(rewound, DivergenceError, "a tree of 4 entries that differs"):
        rewound.client.resync(*_from_checkpoint(fork, 4), fork.consistency(2, 4))


def test_a_rewound_client_may_jump_ahead_if_its_head_is_in_the_tree(rewound: Person) -> None:
    rewound.hub.write("bob")
    rewound.client.resync(*_from_checkpoint(rewound.hub, 5), rewound.hub.consistency(4, 5))
    assert rewound.state.peaks == rewound.hub.log.peaks


def test_a_rewound_client_cannot_be_led_past_its_head_by_a_receipt(alice: Person) -> None:
    for _ in range(3):
        alice.send()
    msg = alice.submit()
    alice.client.resync(*_from_checkpoint(alice.hub, 1), alice.hub.consistency(1, 3))
    fork = alice.hub.fork(1)
    fork.write("mallory", b"1", b"2", b"3")
    receipt = fork.append(msg)
    assert alice.client.accept_receipt(receipt) == Gap(StreamSeq(1), StreamSeq(5))
    with refusing(alice, StateError, "consistency proof from 3 to 5"):
        alice.client.catch_up(receipt, fork.proof(5), fork.consistency(1, 5))


def test_a_checkpoint_before_an_accepted_one_is_refused(rewound: Person) -> None:
    with refusing(rewound, CheckpointError, "before the last checkpoint at 2"):
        rewound.client.resync(*_from_checkpoint(rewound.hub, 1))


def test_a_checkpoint_of_a_stranger_is_refused(alice: Person) -> None:
    other = Hub(name="stranger")
    other.write("bob")
    with refusing(alice, SignatureError, "CHECKPOINT.hub_sig"):
        alice.client.resync(*_from_checkpoint(other, 1))


def test_a_checkpoint_of_another_label_is_refused(alice: Person) -> None:
    other = Hub()
    other.write("bob")
    state = dataclasses.replace(alice.state, label=Label(bytes(32)))
    elsewhere = Person("alice", other, LabelClient(state, alice.client.trust))
    with refusing(elsewhere, StateError, "checkpoint is for label"):
        elsewhere.client.resync(*_from_checkpoint(other, 1))


def test_a_checkpoint_whose_peaks_are_not_proved_is_refused(alice: Person) -> None:
    alice.hub.write("bob", b"1", b"2", b"3")
    checkpoint, leaf, _ = _from_checkpoint(alice.hub, 3)
    with refusing(alice, ProofError):
        alice.client.resync(checkpoint, leaf, alice.hub.proof(2))


# --- rekeying (RESYNC0.3, spec-1 §9)


def test_three_attempts_without_progress_ask_for_fresh_keys(alice: Person) -> None:
    assert MAX_STALLS == 3
    assert [alice.client.stalled() for _ in range(4)] == [False, False, True, True]
    assert alice.restarted().client.stalled()


def test_progress_resets_the_stalls(alice: Person) -> None:
    alice.client.stalled()
    alice.client.stalled()
    alice.send()
    assert alice.state.stalls == 0
    assert not alice.client.stalled()


def test_every_receipt_moves_the_ratchet_by_hkdf_over_its_stream_seq(alice: Person) -> None:
    def hkdf(ikm: bytes, info: bytes) -> bytes:  # RFC 5869, one block, empty salt
        prk = hmac.new(bytes(32), ikm, hashlib.sha256).digest()
        return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()

    expected: bytes = H(b"rk:alice")
    for seq in (1, 2):
        alice.send()
        expected = hkdf(expected, b"veen/rk" + u64be(seq))
        assert bytes(alice.state.rk) == expected


def test_reading_moves_the_ratchet_by_own_messages_only(behind: tuple[Person, Receipt]) -> None:
    alice, receipt = behind
    rk = alice.state.rk
    alice.client.accept_page(alice.hub.page(2, 3))
    assert alice.state.rk == rk
    alice.read()
    assert alice.state.rk == rk.after(receipt.stream_seq)


def test_a_gap_does_not_move_the_ratchet(behind: tuple[Person, Receipt]) -> None:
    alice, receipt = behind
    rk = alice.state.rk
    alice.client.accept_receipt(receipt)
    assert alice.state.rk == rk


def test_ratchet_keys_of_different_stream_seqs_differ() -> None:
    rk = RatchetKey(bytes(32))
    assert rk.after(StreamSeq(1)) != rk.after(StreamSeq(2)) != rk


# --- client_id and its bounds (KEX1+ 4.1)


def test_the_recommended_bounds_are_a_day_and_65536_messages() -> None:
    assert ClientBounds() == ClientBounds(
        max_client_id_lifetime_sec=86_400, max_msgs_per_client_id_per_label=2**16
    )


@pytest.mark.parametrize(
    ("age", "exhausted"),
    [pytest.param(86_399, False, id="a second before"), pytest.param(86_400, True, id="on the second")],
)
def test_a_client_id_ends_with_its_lifetime(alice: Person, age: int, exhausted: bool) -> None:
    now = UnixTime(BORN + age)
    assert alice.client.must_rotate(now) is exhausted
    if exhausted:
        with refusing(alice, StateError, "rotate client_id before sending"):
            alice.client.next_binding(now)


def test_a_client_id_ends_with_its_last_message(hub: Hub) -> None:
    alice = person("alice", hub, bounds=ClientBounds(max_msgs_per_client_id_per_label=2))
    alice.send()
    assert not alice.client.must_rotate(BORN)
    alice.send()
    assert alice.client.must_rotate(BORN)
    with refusing(alice, StateError, "bounds"):
        alice.client.next_binding(BORN)


def test_a_fresh_client_id_starts_over_and_keeps_the_verified_prefix(alice: Person) -> None:
    alice.send()
    fresh = ClientId(signing_key("alice-2").public)
    later = UnixTime(BORN + 86_400)
    alice.client.rotate(fresh, later)
    binding = alice.client.next_binding(later)
    assert (binding.client_id, binding.client_seq, binding.prev_ack) == (fresh, 1, 1)
    alice.name = "alice-2"
    alice.hub.now = later
    alice.send()


def test_a_client_id_cannot_be_rotated_while_a_message_is_pending(alice: Person) -> None:
    alice.submit()
    with refusing(alice, StateError, "wait for its receipt before rotating"):
        alice.client.rotate(ClientId(signing_key("alice-2").public), BORN)


def test_a_client_id_cannot_be_rotated_to_itself(alice: Person) -> None:
    alice.send()
    with refusing(alice, StateError, "the same as the old one"):
        alice.client.rotate(alice.state.client_id, BORN)


# --- the hub it trusts (§8.4, H10)


def test_an_identity_that_does_not_chain_is_not_trusted(hub: Hub) -> None:
    (first,) = hub.identity.hub_keys
    for keys in ((), (dataclasses.replace(first, key_id=KeyId(bytes(32))),)):
        with pytest.raises(IdentityError):
            Trust(identity=dataclasses.replace(hub.identity, hub_keys=keys), profile=hub.profile)


def test_a_state_of_another_profile_is_refused(alice: Person) -> None:
    trust = Trust(identity=alice.hub.identity, profile=PROFILES["bulk"])
    with pytest.raises(StateError, match="a different profile"):
        LabelClient(alice.state, trust)


def test_entries_of_another_profile_break_i4(alice: Person) -> None:
    other = Hub(profile=PROFILES["bulk"])
    assert other.label == alice.hub.label
    other.write("bob")
    with refusing(alice, InvariantError, "I4"):
        alice.client.accept_page(other.page(1))


def test_receipts_from_before_and_after_a_key_rotation_verify(alice: Person) -> None:
    alice.hub.write("bob")
    alice.hub.now = UnixTime(BORN + 1_000)
    alice.hub.rotate_key(window_sec=60)
    alice.hub.write("bob")
    alice.hub.now = UnixTime(BORN + 5_000)
    alice.hub.write("bob")
    late = person("carol", alice.hub)  # meets the hub long after the first key was retired
    late.read()
    assert late.state.last_stream_seq == 3
    with refusing(alice, SignatureError, "no key of the hub that was active"):
        alice.read()  # still holds the identity of before
    alice.client.trust = trust_in(alice.hub)
    alice.read()


def test_a_retired_key_cannot_sign_new_receipts(alice: Person) -> None:
    alice.hub.now = UnixTime(BORN + 1_000)
    alice.hub.rotate_key(window_sec=60)
    alice.client.trust = trust_in(alice.hub)
    old, alice.hub.now = alice.hub.keys[0], UnixTime(BORN + 1_060)
    receipt = alice.hub.append(alice.submit(), key=old)
    with refusing(alice, SignatureError):
        alice.client.accept_receipt(receipt)


def test_labels_outside_the_skew_window_break_i12(rotating_hub: Hub) -> None:
    alice = person("alice", rotating_hub)
    alice.send()
    rotating_hub.now = UnixTime(BORN + 60)
    alice.send()
    rotating_hub.now = UnixTime(BORN + 240)
    rotating_hub.write("bob")
    with refusing(alice, InvariantError, "I12"):
        alice.read()


def test_a_client_that_does_not_know_the_stream_cannot_check_epochs(rotating_hub: Hub) -> None:
    trust = Trust(identity=rotating_hub.identity, profile=rotating_hub.profile)  # H4: opaque label
    alice = person("alice", rotating_hub, trust=trust)
    rotating_hub.now = UnixTime(BORN + 240)
    rotating_hub.write("bob")
    alice.read()
    assert alice.state.last_stream_seq == 1


def test_the_holder_of_the_streams_reader_key_opens_a_message(alice: Person) -> None:
    alice.send(b"for the readers")  # H11
    (entry,) = alice.hub.page(1)
    assert isinstance(entry.msg, Msg)
    assert entry.msg.open(READER).body == b"for the readers"
    assert HubPk(alice.hub.key.public) == alice.hub.hub_pk
