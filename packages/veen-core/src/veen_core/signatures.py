"""Verification of many Ed25519 signatures on all cores, with the result of verifying one after the other.

libsodium verifies without the GIL, so threads share the work. The calling thread takes slices of the list,
and so do the threads of a pool that all callers of the process share. The calling thread never waits for a
slice that no thread has started. A pool that is busy, or without threads, costs time but blocks nothing.

``SignatureBatch`` verifies signatures while more are collected. A thread that verifies needs the GIL after
every signature, and waits for the thread that collects; another process does not. So a program that verifies
long logs can provide an ``Assistant`` (``assisted``), which verifies in processes of its own.

The result depends on none of this: the first invalid signature in the order of the list is reported.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from veen_core.errors import SignatureError, VeenError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import is_valid

SLICE_SIZE: Final = 8
"""Signatures that a thread takes at once, about 0.5 ms of work."""
MIN_SHARED: Final = 16
"""Fewest signatures that are shared: waking a thread takes as long as verifying one or two."""
PIECE_SIZE: Final = 32
"""Signatures that are offered to an assistant at once, about 1.3 ms of work."""
MAX_WAITING: Final = 160
"""Signatures of a batch that may wait for the assistant before the calling thread verifies some itself.

One process of an assistant holds four pieces, and one piece is left for the calling thread, so that both have
work until the batch ends.
"""


class SignatureClaim(NamedTuple):
    """A signature to verify: it is valid if one of ``keys`` made it over ``digest``."""

    keys: Sequence[VerifyKey]
    digest: bytes
    signature: Signature
    refusal: Callable[[], SignatureError]
    """Returns the error to raise if the signature is invalid."""


def verify_all(claims: Sequence[SignatureClaim], *, threads: int | None = None) -> None:
    """Raise the error of the first invalid signature, if there is one.

    ``threads`` includes the calling thread; by default all cores are used.
    """
    if invalid := _Verification(claims, only_first=True).run(threads):
        raise claims[invalid[0]].refusal()


def verify_one(claim: SignatureClaim) -> None:
    """Raise the error of the signature if it is invalid."""
    if not _is_valid(claim):
        raise claim.refusal()


def invalid_signatures(claims: Sequence[SignatureClaim], *, threads: int | None = None) -> list[int]:
    """Return the positions of all invalid signatures, ascending; ``threads`` as for ``verify_all``."""
    return _Verification(claims, only_first=False).run(threads)


@contextmanager
def verifying(claims: Sequence[SignatureClaim], *, threads: int | None = None) -> Iterator[None]:
    """Verify the signatures that the block has added to ``claims``, when the block ends.

    If the block raises, an invalid signature is raised instead: it was added before the block raised, and
    verifying one after the other would have found it first.
    """
    failure: VeenError | None = None
    try:
        yield
    except VeenError as exc:
        failure = exc
    try:
        verify_all(claims, threads=threads)
    except SignatureError as exc:
        raise exc from None
    if failure is not None:
        raise failure


@contextmanager
def verifying_ahead() -> Iterator[SignatureBatch]:
    """Verify the signatures of a batch while the block collects them; errors are those of ``verifying``."""
    failure: VeenError | None = None
    with SignatureBatch() as batch:
        try:
            yield batch
        except VeenError as exc:
            failure = exc
        invalid = batch.finish()
    if invalid:
        raise batch.claims[invalid[0]].refusal() from None
    if failure is not None:
        raise failure


# --- while more are collected


class Assistant(Protocol):
    """Verifies signatures in other processes, for one batch at a time."""

    def offer(self, at: int, claims: Sequence[SignatureClaim], *, left: int | None) -> bool:
        """Take the claims at position ``at`` of the batch; return False if the assistant is busy.

        ``left`` is the number of claims that remain for the calling thread; None while more are collected. If
        the assistant holds more claims than that, the calling thread ends first and waits: so it may refuse.
        """
        ...

    def collect(self) -> list[int]:
        """Wait until everything that was taken is verified; return the positions that were found invalid.

        No claim is lost: the assistant itself verifies those of a process that fails.
        """
        ...


class _Assistance:
    """The assistant of this process, and the right to use it."""

    assistant: Assistant | None = None
    turn = threading.Lock()


@contextmanager
def assisted(assistant: Assistant) -> Iterator[None]:
    """Let an assistant take part in the batches of this process while the block runs, one at a time."""
    before, _Assistance.assistant = _Assistance.assistant, assistant
    try:
        yield
    finally:
        with _Assistance.turn:
            _Assistance.assistant = before


class SignatureBatch:
    """Signatures that are verified while more are collected in ``claims``; use it in a ``with`` block."""

    def __init__(self, *, threads: int | None = None) -> None:
        """``threads`` as for ``verify_all``; a batch with a number of threads has no assistant."""
        self.claims: list[SignatureClaim] = []
        self._threads = threads
        self._next = 0
        """Claims before this one are verified, or an assistant has taken them."""
        self._invalid: list[int] = []
        self._assistant: Assistant | None = None

    def __enter__(self) -> SignatureBatch:
        wanted = self._threads is None and _Assistance.assistant is not None
        if wanted and _Assistance.turn.acquire(blocking=False):
            self._assistant = _Assistance.assistant
            if self._assistant is None:  # its block has just ended
                _Assistance.turn.release()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._assistant is not None:
            try:
                self._assistant.collect()  # if the block raised, discard the outstanding answers
            finally:
                self._assistant = None
                _Assistance.turn.release()

    @property
    def is_assisted(self) -> bool:
        """Whether ``start`` lets another process verify while this thread continues."""
        return self._assistant is not None

    def start(self) -> None:
        """Begin to verify the claims that were added; without an assistant, verify them now."""
        if self._assistant is not None:
            self._share(self._assistant, MAX_WAITING, is_whole=False)
        elif self._next < len(self.claims):
            found = invalid_signatures(self.claims[self._next :], threads=self._threads)
            self._invalid += [self._next + position for position in found]
            self._next = len(self.claims)

    def finish(self) -> list[int]:
        """Verify the remaining claims; return the positions of all invalid signatures, ascending."""
        if self._assistant is not None:
            self._share(self._assistant, 0, is_whole=True)
            self._invalid += self._assistant.collect()
        else:
            self.start()
        return sorted(self._invalid)

    def _share(self, assistant: Assistant, max_waiting: int, *, is_whole: bool) -> None:
        """Offer pieces as long as they are taken; verify the others here until ``max_waiting`` are left.

        ``is_whole``: no more claims will be added.
        """
        while waiting := len(self.claims) - self._next:
            piece = self.claims[self._next : self._next + PIECE_SIZE]
            left = waiting - len(piece) if is_whole else None
            if len(piece) == PIECE_SIZE and assistant.offer(self._next, piece, left=left):
                self._next += PIECE_SIZE
            elif waiting > max_waiting:
                piece = piece[:SLICE_SIZE]
                self._invalid += [at for at, claim in enumerate(piece, self._next) if not _is_valid(claim)]
                self._next += len(piece)
            else:
                return


def _is_valid(claim: SignatureClaim) -> bool:
    for key in claim.keys:  # noqa: SIM110 - any() with a generator costs 0.5 µs more
        if is_valid(key, claim.digest, claim.signature):
            return True
    return False


class _Verification:
    """One list of signatures, and the slices of it that no thread has taken."""

    def __init__(self, claims: Sequence[SignatureClaim], *, only_first: bool) -> None:
        self._claims = claims
        self._only_first = only_first
        self._starts = deque(range(0, len(claims), SLICE_SIZE))
        self._invalid: list[int] = []

    def run(self, threads: int | None) -> list[int]:
        """Return the positions of invalid signatures, ascending; with ``only_first`` at least the first."""
        if threads is None:
            threads = _cores() if len(self._claims) >= MIN_SHARED else 1
        helpers = _start(self._take_slices, min(threads, len(self._starts)) - 1)
        try:
            self._take_slices()
        finally:
            self._starts.clear()
            for helper in helpers:
                if not helper.cancel():
                    helper.result()
        return sorted(self._invalid)

    def _take_slices(self) -> None:
        while True:
            try:
                start = self._starts.popleft()
            except IndexError:
                return
            for at, claim in enumerate(self._claims[start : start + SLICE_SIZE], start):
                if not _is_valid(claim):
                    self._invalid.append(at)
                    if self._only_first:
                        self._starts.clear()  # the slices before this one are taken and will be finished
                        return


# --- the threads that all callers share


class _Pool:
    """The pool of this process, started when it is first needed."""

    executor: ThreadPoolExecutor | None = None


def _start(work: Callable[[], None], count: int) -> list[Future[None]]:
    """Run ``work`` in up to ``count`` threads of the pool; in none if no thread can be started.

    The pool may run a call for which it could not start a thread, and then has returned no future. So each
    call has a future of its own.
    """
    started: list[Future[None]] = []
    try:
        for _ in range(count):
            executor = _Pool.executor
            if executor is None:
                executor = ThreadPoolExecutor(max(1, _cores() - 1), thread_name_prefix="veen-verify")
                _Pool.executor = executor
            started.append(Future())
            executor.submit(_run, started[-1], work)
    except RuntimeError:  # no more threads, or the interpreter is shutting down
        _Pool.executor = None  # its queue has work that perhaps no thread will take
    return started


def _run(done: Future[None], work: Callable[[], None]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        work()
    except BaseException as exc:  # noqa: BLE001 - raised in the calling thread
        done.set_exception(exc)
    else:
        done.set_result(None)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_threads() -> None:
    """Start a new pool in a forked process, which has inherited the pool but not its threads."""
    _Pool.executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
