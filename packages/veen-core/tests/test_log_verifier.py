"""The judge of a log: an honest log is accepted, and each rule that a log can break is named."""

import dataclasses
from collections.abc import Callable

import pytest

from veen_core import DEFAULT_LIMITS, DEFAULT_PROFILE, PROFILES, CapToken, Entry, Label, Msg, Receipt, mint
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.chunk import prune
from veen_core.errors import CapError, CheckpointError, InvariantError, SignatureError, StateError
from veen_core.ids import ClientId, ClientSeq, CtHash, Epoch, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.log_rules import RULES, LogStep, LogTerms, examine, step_of
from veen_core.log_verifier import HubSignatures, LogVerifier
from veen_core.receipt import sign_receipt
from veen_core.stream import stream_id

from .simulator import BORN, STREAM, Hub, flip, long_form, seal, signing_key


def terms_of(hub: Hub, **changes: object) -> LogTerms:
    known = {"label": hub.label, "identity": hub.identity, "profile": hub.profile, "origin": hub.origin}
    if hub.control:
        known["origin"] = None
    return LogTerms(**(known | changes))


def verifier_of(hub: Hub, **options: object) -> LogVerifier:
    return LogVerifier(terms_of(hub), **options)


def at(hub: Hub, size: int, **options: object) -> LogVerifier:
    """A verifier that starts after ``size`` entries, from their peaks."""
    return verifier_of(hub, size=size, peaks=hub.tree(size).peaks, **options)


@pytest.fixture
def hub() -> Hub:
    """A log of five entries by two writers; its label belongs to an epoch of 60 seconds."""
    hub = Hub(profile=PROFILES["rotating"])
    hub.write("bob", b"1", b"2")
    hub.write("carol")
    hub.write("bob", b"3")
    hub.now = UnixTime(BORN + 5)
    hub.write("carol", b"2")
    return hub


def token_hub(*subjects: str) -> Hub:
    hub = Hub(control=True)
    for subject in subjects:
        hub.authorize(token_for(subject))
    return hub


def token_for(subject: str) -> CapToken:
    return mint(signing_key("issuer"), ClientId(signing_key(subject).public), [STREAM], 60)


def state(log: LogVerifier) -> object:
    """Everything that a step may change."""
    tree = log.tree and log.tree.peaks
    return log.size, log.hub_ts, tree, log.checkpointed, log.writers.items(), log.tokens.items()


# --- honest logs


def test_an_honest_log_is_accepted_from_its_first_entry(hub: Hub) -> None:
    log = verifier_of(hub)
    for entry in hub.entries:
        log.accept(entry)
    assert (log.size, log.root, log.hub_ts) == (5, hub.log.root, BORN + 5)
    assert log.followed_all
    assert log.knows_all_writers


def test_a_log_may_be_joined_at_any_entry_from_its_peaks(hub: Hub) -> None:
    for size in range(1, 6):
        log = at(hub, size)
        for entry in hub.page(size + 1):
            log.accept(entry)
        assert log.root == hub.log.root
        assert not log.knows_all_writers


def test_a_log_may_be_joined_without_a_tree_and_then_roots_are_not_checked(hub: Hub) -> None:
    log = verifier_of(hub, size=2, peaks=None)
    wrong_root = _receipt(hub, 3, mmr_root=MmrRoot(bytes(32)))
    for entry in (wrong_root, *hub.page(4)):
        log.accept(entry)
    assert log.size == 5
    with pytest.raises(StateError, match="started without a tree"):
        _ = log.root
    with pytest.raises(StateError, match="started without a tree"):
        log.accept_checkpoint(hub.checkpoint(5))


def test_pruned_entries_give_the_same_root_as_full_entries(hub: Hub) -> None:
    log = verifier_of(hub)
    for entry in hub.entries[:3]:
        log.accept_pruned(prune(entry))
    for entry in hub.entries[3:]:
        log.accept(entry)
    assert log.root == hub.log.root


def test_a_control_label_is_accepted_and_its_tokens_are_followed() -> None:
    hub = token_hub("alice", "bob")
    log = verifier_of(hub)
    for entry in hub.entries:
        log.accept(entry)
    assert log.tokens.get(token_for("bob").auth_ref) == 2


def test_a_step_that_was_examined_elsewhere_needs_no_bytes(hub: Hub) -> None:
    steps = [examine(entry, terms_of(hub)) for entry in hub.entries]
    log = verifier_of(hub)
    for step in steps:
        log.advance(step)
    assert log.root == hub.log.root


def test_an_entry_is_decoded_once(hub: Hub) -> None:
    entry = hub.entries[0]
    assert entry.msg is entry.msg
    assert entry.receipt is entry.receipt
    again = dataclasses.replace(entry, msg_bytes=hub.entries[1].msg_bytes)
    assert again.msg == hub.entries[1].msg


def test_without_a_registry_the_profile_is_not_checked(hub: Hub) -> None:
    log = LogVerifier(terms_of(hub, profile=None))
    for entry in hub.entries:
        log.accept(entry)


# --- one broken rule each


def _signed(hub: Hub, entry: Entry) -> Entry:
    """Return the entry with its receipt signed by the hub."""
    receipt = sign_receipt(hub.key, entry.receipt)
    return dataclasses.replace(entry, receipt_bytes=receipt.encode())


def _receipt(hub: Hub, seq: int, **changes: object) -> Entry:
    """Return entry ``seq`` with a signed receipt of other content."""
    entry = hub.entries[seq - 1]
    return _signed(hub, dataclasses.replace(entry, receipt_bytes=_with(entry.receipt, changes)))


def _with(value: object, changes: dict[str, object]) -> bytes:
    return dataclasses.replace(value, **changes).encode()  # type: ignore[attr-defined,type-var]


def _msg(hub: Hub, **changes: object) -> Entry:
    """The next entry of the log: bob's MSG with changed fields, signed by bob, receipted by the hub."""
    binding = dataclasses.replace(hub.compose("bob").binding, **changes)
    fork = hub.fork(len(hub.entries))
    fork.append(seal(signing_key("bob"), binding, profile=hub.profile))
    return fork.entries[-1]


def _next_with(hub: Hub, **changes: object) -> Entry:
    """The next entry, whose MSG was changed after it was signed; its receipt is for the changed MSG."""
    fork = hub.fork(len(hub.entries))
    fork.append(dataclasses.replace(hub.compose("bob"), **changes))
    return fork.entries[-1]


def _next(hub: Hub, **changes: object) -> Entry:
    """Return the next entry, with a changed receipt."""
    fork = hub.fork(len(hub.entries))
    fork.write("bob", b"next")
    return _receipt(fork, 6, **changes)


def _token_entry(hub: Hub) -> Entry:
    """The next entry holds a token, which belongs on the control label only."""
    fork = hub.fork(len(hub.entries))
    fork.authorize(token_for("alice"))
    return fork.entries[-1]


def _stretched(hub: Hub) -> Entry:
    entry = _next(hub)
    wire = entry.receipt_bytes.replace(b"\x06\x58\x20", long_form(6) + b"\x58\x20", 1)
    return dataclasses.replace(entry, receipt_bytes=wire)


def _framed(hub: Hub, **changes: object) -> Entry:
    return dataclasses.replace(_next(hub), **changes)


BREAKS: dict[str, tuple[str, Callable[[Hub], Entry]]] = {
    "the frame is of another stream_seq": ("§4.8.1", lambda h: _framed(h, stream_seq=StreamSeq(7))),
    "the frame is of another label": (
        "§4.8.1",
        lambda h: _framed(h, label=Label(bytes(32))),
    ),
    "the receipt is not canonical": ("I10", _stretched),
    "the message is not canonical": (
        "I10",
        lambda h: _framed(h, msg_bytes=_next(h).msg_bytes + b"\0"),
    ),
    "the ciphertext announces more than it holds": ("I11", lambda h: _next_with(h, ciphertext=b"\xff" * 64)),
    "ct_hash is another": ("I1", lambda h: _next_with(h, ct_hash=CtHash(bytes(32)))),
    "leaf_hash is another message's": ("I2", lambda h: _next(h, leaf_hash=LeafHash(bytes(32)))),
    "the message is of another label": ("I2", lambda h: _next_with(h, label=Label(bytes(32)))),
    "the profile is not the hub's": ("I4", lambda h: _next_with(h, profile_id=DEFAULT_PROFILE.profile_id)),
    "a token outside the control label": (
        "H5",
        _token_entry,
    ),
    "stream_seq repeats": ("I3", lambda h: h.entries[4]),
    "mmr_root is another tree's": ("I3", lambda h: _next(h, mmr_root=MmrRoot(bytes(32)))),
    "hub_ts goes back": ("H3", lambda h: _next(h, hub_ts=UnixTime(BORN + 4))),
    "prev_ack is ahead of the log": ("I6", lambda h: _msg(h, prev_ack=StreamSeq(6))),
    "client_seq was accepted before": ("I8", lambda h: _msg(h, client_seq=ClientSeq(3))),
    "client_seq skips": ("I9", lambda h: _msg(h, client_seq=ClientSeq(5))),
    "the label is of an epoch gone by": ("I12", lambda h: _next(h, hub_ts=UnixTime(BORN + 180))),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_named_and_changes_nothing(hub: Hub, name: str) -> None:
    rule, damaged = BREAKS[name]
    log = verifier_of(hub, signatures=_Unchecked())
    for entry in hub.entries:
        log.accept(entry)
    before = state(log)
    with pytest.raises(InvariantError, match=r"\((core|RESOLUTIONS) .*stream_seq \d\)") as caught:
        log.accept(damaged(hub))
    assert caught.value.invariant == rule
    assert state(log) == before
    log.accept(_next(hub))


def test_every_rule_has_an_entry_that_breaks_it() -> None:
    assert {rule.name for rule in RULES} == {rule for rule, _ in BREAKS.values()}


class _Unchecked:
    """No signature is verified: the changed messages above are not signed again."""

    def check_msg(self, msg: Msg, wire: bytes) -> None: ...
    def check_token(self, token: object) -> None: ...
    def check_receipt(self, receipt: object, wire: bytes) -> None: ...
    def check_checkpoint(self, checkpoint: Checkpoint) -> None: ...


def test_a_message_that_is_too_large_is_refused_before_it_is_decoded(hub: Hub) -> None:
    log = LogVerifier(terms_of(hub, limits=DEFAULT_LIMITS.lowered({"max_msg_bytes": 100})))
    with pytest.raises(InvariantError, match="I11: 101 bytes exceed max_msg_bytes = 100"):
        log.accept(dataclasses.replace(hub.entries[0], msg_bytes=b"\xff" * 101))


def test_an_entry_of_another_log_is_refused(hub: Hub) -> None:
    log = LogVerifier(terms_of(hub, label=Label(bytes(32)), origin=None))
    with pytest.raises(InvariantError, match="I2: the entry has label"):
        log.accept(hub.entries[0])
    with pytest.raises(InvariantError, match="I2: the RECEIPT has label"):
        log.accept_pruned(prune(hub.entries[0]))


def test_a_new_writer_of_a_log_read_from_the_start_begins_at_1(hub: Hub) -> None:
    skipped = dataclasses.replace(hub.compose("erin").binding, client_seq=ClientSeq(2))
    hub.append(seal(signing_key("erin"), skipped, profile=hub.profile))
    log = verifier_of(hub)
    for entry in hub.entries[:5]:
        log.accept(entry)
    with pytest.raises(InvariantError, match="I9: client_seq 2 does not follow 0"):
        log.accept(hub.entries[5])
    at(hub, 5).accept(hub.entries[5])  # whoever joins later cannot know


def test_no_writer_starts_at_0(hub: Hub) -> None:
    step = step_of(hub.receipt(3), hub.entries[2].msg)._replace(client_seq=ClientSeq(0))
    with pytest.raises(InvariantError, match="I9: client_seq 0 does not follow 0"):
        at(hub, 2).advance(step)


def test_the_epoch_is_checked_again_when_the_time_changes(hub: Hub) -> None:
    log = at(hub, 4)
    log.accept(hub.entries[4])
    late = step_of(hub.receipt(5), hub.entries[4].msg)._replace(
        stream_seq=StreamSeq(6), client_seq=ClientSeq(3), hub_ts=UnixTime(2**64 - 1)
    )
    with pytest.raises(InvariantError, match="I12"):
        log.advance(late)


TWICE_BROKEN = {
    "position before time": ("I3", {"stream_seq": StreamSeq(9), "hub_ts": UnixTime(0)}),
    "time before prev_ack": ("H3", {"hub_ts": UnixTime(0), "prev_ack": StreamSeq(9)}),
    "prev_ack before client_seq": ("I6", {"prev_ack": StreamSeq(9), "client_seq": ClientSeq(9)}),
    "client_seq before epoch": ("I8", {"client_seq": ClientSeq(1), "hub_ts": UnixTime(2**64 - 1)}),
    "epoch before root": ("I12", {"hub_ts": UnixTime(2**64 - 1), "mmr_root": MmrRoot(bytes(32))}),
}


@pytest.mark.parametrize("name", TWICE_BROKEN)
def test_of_two_broken_rules_the_first_in_order_is_named(hub: Hub, name: str) -> None:
    rule, changes = TWICE_BROKEN[name]
    log = verifier_of(hub)
    for entry in hub.entries[:4]:
        log.accept(entry)
    with pytest.raises(InvariantError) as caught:
        log.advance(examine(hub.entries[4], terms_of(hub))._replace(**changes))
    assert caught.value.invariant == rule


# --- pruned entries


PRUNED: dict[str, tuple[str, dict[str, object]]] = {
    "another leaf": ("I2", {"ct_hash": CtHash(bytes(32))}),
    "another profile": ("I2", {"profile_id": DEFAULT_PROFILE.profile_id}),
    "prev_ack ahead of the log": ("I6", {"prev_ack": StreamSeq(2)}),
}


@pytest.mark.parametrize("name", PRUNED)
def test_a_pruned_entry_that_breaks_a_rule_is_named(hub: Hub, name: str) -> None:
    rule, changes = PRUNED[name]
    log = at(hub, 1)
    with pytest.raises(InvariantError) as caught:
        log.accept_pruned(dataclasses.replace(prune(hub.entries[1]), **changes))
    assert caught.value.invariant == rule
    assert log.size == 1


def test_a_pruned_entry_under_another_profile_is_named(hub: Hub) -> None:
    log = LogVerifier(terms_of(hub, profile=DEFAULT_PROFILE))
    with pytest.raises(InvariantError, match="I4"):
        log.accept_pruned(prune(hub.entries[0]))


def test_a_pruned_entry_needs_the_hubs_signature(hub: Hub) -> None:
    forged = dataclasses.replace(hub.receipt(1), hub_sig=flip(hub.receipt(1).hub_sig))
    with pytest.raises(SignatureError, match="hub_sig"):
        verifier_of(hub).accept_pruned(dataclasses.replace(prune(hub.entries[0]), receipt=forged))


# --- tokens


def test_a_token_is_authorized_once() -> None:
    hub = token_hub("alice", "bob", "alice")
    log = verifier_of(hub)
    log.accept(hub.entries[0])
    log.accept(hub.entries[1])
    with pytest.raises(InvariantError, match=r"H5: token [0-9a-f]{64} was already authorized by entry 1"):
        log.accept(hub.entries[2])


def test_a_receipt_for_another_token_is_refused() -> None:
    hub = token_hub("alice", "bob")
    swapped = dataclasses.replace(hub.entries[0], msg_bytes=hub.entries[1].msg_bytes)
    with pytest.raises(
        InvariantError, match="H5: leaf_hash in the RECEIPT is not the leaf hash of the entry's token"
    ):
        verifier_of(hub).accept(swapped)


def test_a_token_that_is_not_canonical_is_refused() -> None:
    hub = token_hub("alice")
    with pytest.raises(InvariantError, match="I10: cap_token"):
        verifier_of(hub).accept(dataclasses.replace(hub.entries[0], msg_bytes=b"\xa0"))


def test_a_token_that_its_issuer_did_not_sign_is_refused() -> None:
    hub = Hub(control=True)
    token = token_for("alice")
    hub.authorize(dataclasses.replace(token, sig_chain=(flip(token.sig_chain[0]),)))
    with pytest.raises(CapError, match="sig_chain"):
        verifier_of(hub).accept(hub.entries[0])


# --- signatures


def test_a_message_that_its_writer_did_not_sign_is_refused(hub: Hub) -> None:
    entry = hub.entries[0]
    forged = dataclasses.replace(entry.msg, sig=flip(entry.msg.sig)).encode()
    with pytest.raises(SignatureError, match=r"MSG\.sig"):
        verifier_of(hub).accept(dataclasses.replace(entry, msg_bytes=forged))


def test_a_receipt_counts_under_the_keys_that_were_active_at_its_time(hub: Hub) -> None:
    old = hub.key
    hub.rotate_key(window_sec=10)
    hub.write("bob")
    hub.append(hub.compose("carol"), key=old)
    hub.now = UnixTime(hub.now + 10)
    hub.append(hub.compose("bob"), key=old)
    log = verifier_of(hub)
    for entry in hub.entries[:7]:
        log.accept(entry)
    with pytest.raises(SignatureError, match="no key of the hub that was active"):
        log.accept(hub.entries[7])


def test_signatures_may_be_checked_elsewhere(hub: Hub) -> None:
    """The verifier passes on everything that another process needs to verify a signature."""
    seen: list[tuple[type, bytes]] = []

    class Collected(_Unchecked):
        def check_msg(self, msg: Msg, wire: bytes) -> None:
            seen.append((type(msg), wire))

        def check_receipt(self, receipt: object, wire: bytes) -> None:
            seen.append((type(receipt), wire))

    log = verifier_of(hub, signatures=Collected())
    log.accept(hub.entries[0])
    log.accept_pruned(prune(hub.entries[1]))
    one, two = hub.entries[:2]
    assert seen == [(Msg, one.msg_bytes), (Receipt, one.receipt_bytes), (Receipt, two.receipt_bytes)]


# --- checkpoints


def test_checkpoints_in_order_are_accepted(hub: Hub) -> None:
    log = verifier_of(hub)
    for entry in hub.entries:
        log.accept(entry)
        if entry.stream_seq % 2:
            log.accept_checkpoint(hub.checkpoint(entry.stream_seq))
    assert log.checkpointed == 5


def test_the_first_checkpoint_of_a_label_may_name_the_previous_label(hub: Hub) -> None:
    log = verifier_of(hub)
    log.accept(hub.entries[0])
    previous = hub.origin.label_at(hub.epoch - 1)
    log.accept_checkpoint(_checkpoint(hub, 1, label_prev=previous))
    log.accept(hub.entries[1])
    with pytest.raises(CheckpointError, match="after the label's first checkpoint"):
        log.accept_checkpoint(_checkpoint(hub, 2, label_prev=previous))


def _checkpoint(hub: Hub, upto: int, **changes: object) -> Checkpoint:
    return sign_checkpoint(hub.key, dataclasses.replace(hub.checkpoint(upto), **changes))


CHECKPOINTS: dict[str, tuple[str, Callable[[Hub], Checkpoint]]] = {
    "of another label": ("label_curr is 0000", lambda h: _checkpoint(h, 2, label_curr=Label(bytes(32)))),
    "of an earlier entry": ("is not the end of the log", lambda h: h.checkpoint(1)),
    "of a later entry": ("is not the end of the log", lambda h: h.checkpoint(3)),
    "with another root": ("mmr_root", lambda h: _checkpoint(h, 2, mmr_root=MmrRoot(bytes(32)))),
    "of another epoch": ("is not the epoch of hub_ts", lambda h: _checkpoint(h, 2, epoch=Epoch(h.epoch + 1))),
    "with another label before": ("label_prev", lambda h: _checkpoint(h, 2, label_prev=Label(bytes(32)))),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("derivable", [True, False], ids=["stream known", "stream unknown"])
def test_a_checkpoint_that_breaks_a_rule_is_refused(hub: Hub, name: str, *, derivable: bool) -> None:
    match, made = CHECKPOINTS[name]
    log = LogVerifier(terms_of(hub) if derivable else terms_of(hub, origin=None))
    for entry in hub.entries[:2]:
        log.accept(entry)
    before = state(log)
    if name == "with another label before" and not derivable:
        log.accept_checkpoint(made(hub))  # the first of its label: only the stream's name could tell
        return
    with pytest.raises(CheckpointError, match=match):
        log.accept_checkpoint(made(hub))
    assert state(log) == before


def test_a_second_checkpoint_at_the_same_upto_seq_is_refused(hub: Hub) -> None:
    log = at(hub, 2, hub_ts=hub.receipt(2).hub_ts)
    log.accept_checkpoint(hub.checkpoint(2))
    with pytest.raises(CheckpointError, match="has a checkpoint already"):
        log.accept_checkpoint(hub.checkpoint(2))


def test_without_epochs_no_checkpoint_rotates_a_label() -> None:
    hub = Hub()
    hub.write("bob")
    log = LogVerifier(terms_of(hub, origin=None))
    log.accept(hub.entries[0])
    with pytest.raises(CheckpointError, match="label_prev"):
        log.accept_checkpoint(_checkpoint(hub, 1, label_prev=Label(bytes(32))))


def test_a_checkpoint_that_the_hub_did_not_sign_is_refused(hub: Hub) -> None:
    log = at(hub, 2, hub_ts=hub.receipt(2).hub_ts)
    forged = sign_checkpoint(signing_key("stranger"), hub.checkpoint(2))
    with pytest.raises(SignatureError, match="hub_sig"):
        log.accept_checkpoint(forged)


def test_a_witness_signature_by_a_stranger_is_refused(hub: Hub) -> None:
    log = at(hub, 2, hub_ts=hub.receipt(2).hub_ts)
    with pytest.raises(SignatureError, match="witness_sigs"):
        log.accept_checkpoint(hub.checkpoint(2, witnesses=(signing_key("stranger"),)))
    assert log.checkpointed is None
    log.accept_checkpoint(hub.checkpoint(2, witnesses=(hub.key,)))


def test_without_a_registry_the_epoch_of_a_checkpoint_is_not_checked(hub: Hub) -> None:
    log = LogVerifier(terms_of(hub, profile=None, origin=None))
    log.accept(hub.entries[0])
    log.accept_checkpoint(_checkpoint(hub, 1, epoch=Epoch(7)))


# --- bounded memory


def test_beyond_the_bound_a_writer_is_evicted_and_followed_all_is_false(hub: Hub) -> None:
    log = verifier_of(hub, max_writers=1)
    for entry in hub.entries:
        log.accept(entry)
    assert len(log.writers) == 1
    assert not log.followed_all
    assert not log.knows_all_writers


def test_beyond_the_bound_the_oldest_token_is_evicted_and_followed_all_is_false() -> None:
    hub = token_hub("alice", "bob", "alice")
    log = verifier_of(hub, max_tokens=1)
    for entry in hub.entries:
        log.accept(entry)
    assert not log.followed_all


# --- going on


def test_after_a_reported_error_the_log_can_be_followed(hub: Hub) -> None:
    log = at(hub, 2)
    broken = examine(hub.entries[2], terms_of(hub))._replace(prev_ack=StreamSeq(9))
    with pytest.raises(InvariantError, match="I6"):
        log.advance(broken)
    log.follow(broken)
    log.accept(hub.entries[3])
    assert log.root == hub.tree(4).root


def test_following_across_a_gap_drops_the_tree(hub: Hub) -> None:
    log = at(hub, 1)
    step: LogStep = examine(hub.entries[3], terms_of(hub))
    log.follow(step)
    assert (log.size, log.tree) == (4, None)
    log.accept(hub.entries[4])


def test_following_without_a_tree_only_counts_entries(hub: Hub) -> None:
    log = verifier_of(hub, size=1, peaks=None)
    log.follow(examine(hub.entries[1], terms_of(hub)))
    assert log.size == 2


def test_a_copy_does_not_change_the_original(hub: Hub) -> None:
    log = verifier_of(hub)
    before = state(log)
    twin = log.copy()
    for entry in hub.entries:
        twin.accept(entry)
    assert state(log) == before
    assert verifier_of(hub, size=1, peaks=None).copy().tree is None


def test_a_verifier_continues_after_the_hub_adds_a_key(hub: Hub) -> None:
    log = verifier_of(hub)
    log.accept(hub.entries[0])
    hub.rotate_key()
    hub.write("bob", b"under the new key")
    log = log.under(terms_of(hub))
    for entry in hub.entries[1:]:
        log.accept(entry)
    assert log.size == 6


def test_the_control_label_is_known_from_the_identity(hub: Hub) -> None:
    assert terms_of(token_hub()).is_control_label
    assert not terms_of(hub).is_control_label
    assert stream_id("veen/control") != STREAM
    assert HubSignatures(terms_of(hub)).terms.label == hub.label
