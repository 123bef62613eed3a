"""Compare and persist as one durable step, in one thread (C2SP tlog-witness).

The thread takes all requests that wait and handles them as one batch:

1. each request is compared with the newest cosigned checkpoint, of the memory or of the batch so far;
2. the new checkpoint is cosigned;
3. one synced transaction makes all new checkpoints durable, so that one sync serves many logs;
4. only then the answers are handed out.

Since one thread compares and persists, no request can roll back another (the race that the page describes).
If the transaction fails, no answer of the batch is handed out, and the witness stops: what is on disk is not
known until the memory is opened again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from veen_core.protocols import Clock
from veen_core.tlog.note import Note, cosign
from veen_core.tlog.tree_head import SignedHead
from veen_hub.ops.logs import LOGGER, log
from veen_hub.witness.contradiction import find_contradiction
from veen_hub.witness.key import WitnessKey
from veen_hub.witness.memory import Changes, CosignedHead, Memory
from veen_hub.witness.rules import TEXT, Refusal, SignedRequest, check_against
from veen_storage import StorageError

MAX_BATCH: Final = 256
"""Requests in one transaction."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and content type of an answer."""

    status: int
    body: str
    content_type: str = TEXT


FAILED: Final = Answer(500, "the witness cannot write its memory and stops\n")
Settle = Callable[[list[tuple["Pending", Answer]]], None]
"""Called in the cosigner's thread with the answers of a batch, after they are durable."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request that waits for its batch."""

    signed: SignedRequest
    reply: Callable[[Answer], None] = field(repr=False)


class Cosigner:
    """The thread that compares, cosigns and persists."""

    def __init__(
        self, memory: Memory, key: WitnessKey, clock: Clock, settle: Settle, failed: Callable[[], None]
    ) -> None:
        """``settle`` and ``failed`` are called in the cosigner's thread."""
        self._memory = memory
        self._key = key
        self._clock = clock
        self._settle = settle
        self._failed = failed
        self._is_broken = False
        self._waiting: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cosigner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    def submit(self, pending: Pending) -> None:
        self._waiting.put(pending)

    def stop(self) -> None:
        """Handle what waits, then end; does not return before."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            ending = False
            while len(batch) < MAX_BATCH and not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    ending = True
                    break
                batch.append(more)
            self._handle(batch)
            if ending:
                return

    def _handle(self, batch: list[Pending]) -> None:
        changes = Changes()
        try:
            if self._is_broken:
                raise StorageError("an earlier write failed")
            answers = [(pending, self._answer(pending.signed, changes)) for pending in batch]
            self._memory.commit(changes)  # commit point: what is answered below is durable
        except Exception:  # noqa: BLE001 - logged; even a bug must not leave requests without an answer
            LOGGER.exception("memory_failed")
            answers = [(pending, FAILED) for pending in batch]
            self._is_broken = True
            self._failed()
        self._settle(answers)

    def _answer(self, signed: SignedRequest, changes: Changes) -> Answer:
        origin = signed.head.origin
        cosigned = changes.heads.get(origin) or self._memory.heads.get(origin)
        known = cosigned.known if cosigned is not None else self._memory.known(origin)
        note = Note(signed.request.checkpoint.note.text, signed.signatures)
        now = self._clock.now()
        try:
            check_against(known, signed)
        except Refusal as refusal:
            proof = signed.request.proof if refusal.status == 422 else ()
            newest = cosigned.signed if cosigned is not None else None
            found = find_contradiction(newest, SignedHead(signed.head, note), proof, now)
            if found is not None:
                changes.found.setdefault(origin, []).append(found)
                log(logging.WARNING, "log_contradiction", origin=origin, claim=found.claim, id=found.id)
            return Answer(refusal.status, refusal.body, refusal.content_type)
        if cosigned is not None and now < cosigned.cosigned_at:
            log(logging.WARNING, "clock_went_back", origin=origin, by_sec=cosigned.cosigned_at - now)
        line = cosign(self._key.signing, self._key.verifier.name, note.text, now)
        changes.heads[origin] = CosignedHead(SignedHead(signed.head, note.with_signatures([line])), now)
        return Answer(200, line.line)
