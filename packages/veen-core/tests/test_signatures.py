"""Many signatures are verified on all cores, and the result is that of verifying one after the other."""

import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from veen_core import H, SigningKey, SigningSeed, signatures
from veen_core.errors import SignatureError, StateError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import refused
from veen_core.signatures import (
    SignatureBatch,
    SignatureClaim,
    assisted,
    invalid_signatures,
    verify_all,
    verify_one,
    verifying,
    verifying_ahead,
)

from .simulator import flip

KEY = SigningKey(SigningSeed(H(b"signer")))
OTHER = SigningKey(SigningSeed(H(b"other")))
COUNT = 400
THREADS = [1, 2, 5, None]


def claim(number: int, *, keys: tuple[VerifyKey, ...] = (KEY.public,), intact: bool = True) -> SignatureClaim:
    digest = H(number.to_bytes(4, "big"))
    signature = KEY.sign(digest) if intact else Signature(flip(KEY.sign(digest), number % 64))
    return SignatureClaim(keys, digest, signature, partial(refused, KEY.public, f"signature {number}"))


@pytest.fixture(scope="module")
def intact() -> list[SignatureClaim]:
    return [claim(number) for number in range(COUNT)]


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(signatures, "_cores", lambda: 4)
    signatures._forget_threads()
    yield
    signatures._forget_threads()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 15, 16, 17, COUNT])
def test_intact_signatures_pass(intact: list[SignatureClaim], count: int, threads: int | None) -> None:
    verify_all(intact[:count], threads=threads)
    assert invalid_signatures(intact[:count], threads=threads) == []


@pytest.mark.parametrize("at", range(0, COUNT, 7))
def test_a_flipped_signature_is_reported_wherever_it_is(intact: list[SignatureClaim], at: int) -> None:
    claims = [*intact[:at], claim(at, intact=False), *intact[at + 1 :]]
    with pytest.raises(SignatureError, match=f"^signature {at} does not verify under key {KEY.public.hex()}"):
        verify_all(claims)


@pytest.mark.parametrize("threads", THREADS)
def test_of_several_flipped_signatures_the_first_in_the_list_is_reported(
    intact: list[SignatureClaim], threads: int | None
) -> None:
    flipped = {11, 12, 40, 199, 399}
    claims = [claim(n, intact=False) if n in flipped else one for n, one in enumerate(intact)]
    for _ in range(20):
        with pytest.raises(SignatureError, match=r"^signature 11 "):
            verify_all(claims, threads=threads)
    assert invalid_signatures(claims, threads=threads) == sorted(flipped)


def test_any_of_several_keys_may_have_made_a_signature() -> None:
    verify_one(claim(1, keys=(OTHER.public, KEY.public)))
    for keys in [(), (OTHER.public,)]:
        with pytest.raises(SignatureError, match=r"^signature 1 "):
            verify_one(claim(1, keys=keys))
        assert invalid_signatures([claim(0), claim(1, keys=keys)]) == [1]


def test_many_signatures_are_shared_and_few_are_not(
    intact: list[SignatureClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[str] = set()
    both = threading.Barrier(2)

    def is_valid(*_: object) -> bool:
        if (name := threading.current_thread().name) not in used:
            used.add(name)
            both.wait(30)  # each thread waits at its first signature until the other has one
        return True

    monkeypatch.setattr(signatures, "is_valid", is_valid)
    verify_all(intact, threads=2)
    assert len(used) == 2
    monkeypatch.setattr(signatures, "_start", lambda _work, count: [] if not count else pytest.fail("shared"))
    verify_all(intact[: signatures.MIN_SHARED - 1])


def test_work_whose_thread_could_not_be_started_is_waited_for_if_another_thread_takes_it(
    intact: list[SignatureClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool queues the work before it fails to start a thread, and one of its threads may take it."""
    free, main = threading.Event(), threading.get_ident()
    pool = signatures._Pool.executor = ThreadPoolExecutor(2)
    pool.submit(free.wait)  # one thread, busy for another caller
    right = signatures._is_valid

    def is_valid(claim: SignatureClaim) -> bool:
        if threading.get_ident() == main:
            free.set()
            time.sleep(0.02)  # until the thread has taken a slice
        else:
            time.sleep(0.2)
        return right(claim)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    monkeypatch.setattr(signatures, "_is_valid", is_valid)
    claims = [*intact[:8], *(claim(number, intact=False) for number in range(8, 16)), *intact[16:24]]
    with pytest.raises(SignatureError, match="signature 8 "):
        verify_all(claims)
    pool.shutdown()


def test_without_threads_the_calling_thread_verifies_all(
    intact: list[SignatureClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    verify_all(intact)
    assert invalid_signatures([*intact, claim(COUNT, intact=False)]) == [COUNT]


def test_a_pool_that_is_busy_blocks_nothing(intact: list[SignatureClaim]) -> None:
    free = threading.Event()
    busy = signatures._start(lambda: bool(free.wait(30)) and None, 3)
    try:
        verify_all(intact)
    finally:
        free.set()
    for one in busy:
        one.result(30)


def _verify_in_child(claims: list[tuple[bytes, bytes, bytes]]) -> bool:
    rebuilt = [
        SignatureClaim((VerifyKey(key),), digest, Signature(sig), partial(refused, KEY.public, "signature"))
        for key, digest, sig in claims
    ]
    verify_all(rebuilt)
    return signatures._Pool.executor is not None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12
def test_a_forked_process_starts_threads_of_its_own(intact: list[SignatureClaim]) -> None:
    verify_all(intact)
    plain = [(one.keys[0], one.digest, one.signature) for one in intact]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_verify_in_child, (plain,)).get(60)


# --- with other checks in between


def add(claims: list[SignatureClaim], added: list[SignatureClaim], then: Exception | None = None) -> None:
    with verifying(claims):
        claims += added
        if then is not None:
            raise then


def test_a_signature_is_reported_before_what_came_after_it(intact: list[SignatureClaim]) -> None:
    with pytest.raises(SignatureError, match=r"^signature 3 ") as caught:
        add([], [*intact[:3], claim(3, intact=False), *intact[4:]], StateError("later"))
    assert caught.value.__suppress_context__


def test_an_error_is_reported_if_every_signature_before_it_is_valid(intact: list[SignatureClaim]) -> None:
    with pytest.raises(StateError, match="the only fault"):
        add([], intact, StateError("the only fault"))


def test_signatures_are_verified_when_the_block_ends(intact: list[SignatureClaim]) -> None:
    add([], intact)
    with pytest.raises(SignatureError, match=r"^signature 400 "):
        add(list(intact), [claim(COUNT, intact=False)])


# --- while more are collected


class BusyAssistant:
    """Takes every second piece that it is offered, and verifies it when it is asked for the result."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, Sequence[SignatureClaim]]] = []
        self.offers = self.verified = 0

    def offer(self, at: int, claims: Sequence[SignatureClaim], *, left: int | None) -> bool:
        del left
        self.offers += 1
        if self.offers % 2:
            return False
        self.taken.append((at, claims))
        return True

    def collect(self) -> list[int]:
        found = [at + each for at, claims in self.taken for each in invalid_signatures(claims, threads=1)]
        self.verified += sum(len(claims) for _, claims in self.taken)
        self.taken.clear()
        return found


def verify_in_steps(claims: Sequence[SignatureClaim], step: int, threads: int | None = None) -> list[int]:
    with SignatureBatch(threads=threads) as batch:
        for at in range(0, len(claims), step):
            batch.claims += claims[at : at + step]
            batch.start()
        return batch.finish()


@pytest.mark.parametrize("step", [1, 33, COUNT])
def test_a_batch_names_every_invalid_signature_whoever_verified_it(
    intact: list[SignatureClaim], step: int
) -> None:
    flipped = [0, 31, 32, 140, 399]
    claims = [claim(at, intact=False) if at in flipped else one for at, one in enumerate(intact)]
    assert verify_in_steps(claims, step) == flipped
    assert verify_in_steps(claims, step, threads=1) == flipped
    assistant = BusyAssistant()
    with assisted(assistant):
        assert verify_in_steps(claims, step) == flipped
    assert 0 < assistant.verified < COUNT


def test_an_assistant_helps_one_batch_at_a_time_and_only_while_its_block_runs(
    intact: list[SignatureClaim],
) -> None:
    assistant = BusyAssistant()
    with assisted(assistant):
        with SignatureBatch() as first, SignatureBatch() as second:
            assert first.is_assisted
            assert not second.is_assisted
        with SignatureBatch(threads=2) as alone:
            assert not alone.is_assisted
    assert verify_in_steps(intact, COUNT) == []
    assert assistant.offers == 0


def give_up_a_batch() -> None:
    with SignatureBatch() as batch:
        batch.claims += [claim(at, intact=False) for at in range(COUNT)]
        batch.start()
        raise RuntimeError


def test_a_batch_that_is_given_up_leaves_no_result_for_the_next_one(intact: list[SignatureClaim]) -> None:
    with assisted(BusyAssistant()):
        with pytest.raises(RuntimeError):
            give_up_a_batch()
        assert verify_in_steps(intact, COUNT) == []


def collect_until_a_fault(claims: Sequence[SignatureClaim]) -> None:
    with verifying_ahead() as batch:
        batch.claims += claims
        raise StateError("the fault that ended it")


def test_a_signature_is_reported_before_the_fault_that_ended_its_batch(intact: list[SignatureClaim]) -> None:
    with pytest.raises(SignatureError, match=r"^signature 3 "):
        collect_until_a_fault([*intact[:3], claim(3, intact=False)])
    with pytest.raises(StateError, match="the fault that ended it"):
        collect_until_a_fault(intact)
