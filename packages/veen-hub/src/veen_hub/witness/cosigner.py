"""Compare and persist as one durable step (C2SP tlog-witness).

All requests are handled in the event loop, one after the other:

1. a request is compared with the newest cosigned checkpoint of its log, durable or not;
2. the new checkpoint is cosigned, and joins the open batch;
3. while no other batch is being written, the open one is written in a thread: one synced transaction makes
   the checkpoints of many logs durable;
4. only then the answers of the batch are handed out, refusals too, because they may quote its sizes.

Comparing happens in one place, and batches are written in the order in which they were decided, so no
request can roll back another (the race that C2SP describes). If a transaction fails, no answer of its
batch and of later ones is handed out, and the witness stops: what is on disk is not known until the state
is opened again.

Only the transaction has a thread of its own. A thread that also verifies and signs was slower by a third:
each call into libsodium gives the interpreter lock to the other thread, and waits to get it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import EncodeError
from veen_core.ids import UnixTime
from veen_core.protocols import Clock
from veen_core.tlog.note import MAX_NOTE_BYTES, Note, cosign
from veen_core.tlog.tree_head import SignedHead
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.threads import started_pool
from veen_hub.witness.contradiction import find_contradiction
from veen_hub.witness.key import WitnessKey
from veen_hub.witness.rules import TEXT, NewestCosigned, SignedRequest, WitnessRefusal, check_against
from veen_hub.witness.state import CosignedHead, KeptContradiction, WitnessChanges, WitnessState

MAX_WAITING: Final = 4_096
"""Requests that wait for the disk; a further one is answered with 503."""


@dataclass(frozen=True, slots=True)
class CosignAnswer:
    """Status, body and content type of an answer."""

    status: int
    body: str
    content_type: str = TEXT


BUSY: Final = CosignAnswer(503, "the disk is too slow for the requests that wait; try again in a second\n")
NO_ROOM: Final = CosignAnswer(400, f"with a cosignature, the note has more than {MAX_NOTE_BYTES} bytes\n")
FAILED: Final = CosignAnswer(500, "the witness cannot write its state and stops\n")


@dataclass(slots=True)
class CosigningBatch:
    """Requests that one transaction makes durable, and their answers."""

    changes: WitnessChanges = field(default_factory=WitnessChanges)
    answers: list[tuple[asyncio.Future[CosignAnswer], CosignAnswer]] = field(default_factory=list)


class Cosigner:
    """Compares, cosigns and persists; all methods run in the event loop."""

    def __init__(
        self,
        state: WitnessState,
        key: WitnessKey,
        clock: Clock,
        wrote: Callable[[int], None],
        failed: asyncio.Event,
    ) -> None:
        """``wrote`` is called with the number of requests of each batch, ``failed`` is set at a failure."""
        self._state = state
        self._key = key
        self._clock = clock
        self._wrote = wrote
        self._failed = failed
        self._open = CosigningBatch()
        self._written = CosigningBatch()
        """The batch that is being written."""
        self._writing: asyncio.Task[None] | None = None
        self._pool = started_pool(1, "state")

    async def handle(self, signed: SignedRequest) -> CosignAnswer:
        """Answer a request when the answer is durable."""
        if self._failed.is_set():
            return FAILED
        if len(self._open.answers) >= MAX_WAITING:
            return BUSY
        answered: asyncio.Future[CosignAnswer] = asyncio.get_running_loop().create_future()
        self._open.answers.append((answered, self._decide(signed)))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_batches())
        return await answered

    async def stop(self) -> None:
        """Write what waits, and end the thread."""
        if self._writing is not None:
            await self._writing
        self._pool.shutdown()

    async def _write_batches(self) -> None:
        """Write batches until none is open; requests that arrive meanwhile form the next one."""
        while self._open.answers:
            batch, self._open = self._open, CosigningBatch()
            self._written = batch
            try:
                if self._failed.is_set():
                    raise RuntimeError("an earlier transaction failed")
                if changes := batch.changes:
                    await asyncio.get_running_loop().run_in_executor(self._pool, self._state.write, changes)
                    self._state.adopt(changes)  # durable from here on
            except Exception:  # noqa: BLE001 - logged; even after a bug no request is left without an answer
                LOGGER.exception("state_write_failed")
                self._failed.set()
                batch.answers = [(answered, FAILED) for answered, _ in batch.answers]
            self._written = CosigningBatch()
            self._wrote(len(batch.answers))
            for answered, answer in batch.answers:
                if not answered.done():  # the client may have disconnected
                    answered.set_result(answer)
        self._writing = None

    def _decide(self, signed: SignedRequest) -> CosignAnswer:
        """Compare a request with the newest checkpoint of its log, and cosign."""
        newest = self._newest(signed.head.origin)
        checkpoint = SignedHead(signed.head, Note(signed.request.checkpoint.note.text, signed.signatures))
        now = self._clock.now()
        try:
            check_against(newest.known if newest is not None else NewestCosigned(), signed)
        except WitnessRefusal as refusal:
            proof = signed.request.proof if refusal.status == 422 else None
            known = newest.signed if newest is not None else None
            if (found := find_contradiction(known, checkpoint, proof, now)) is not None:
                self._keep(KeptContradiction.of(found))
            return CosignAnswer(refusal.status, refusal.body, refusal.content_type)
        return self._cosign(checkpoint, self._not_before(newest, now))

    def _cosign(self, checkpoint: SignedHead, now: UnixTime) -> CosignAnswer:
        line = cosign(self._key.signing, self._key.verifier.name, checkpoint.note.text, now)
        cosigned = SignedHead(checkpoint.head, checkpoint.note.with_signatures([line]))
        try:
            cosigned.encode()
        except EncodeError:
            return NO_ROOM
        self._adopt(CosignedHead(cosigned, now))
        return CosignAnswer(200, line.line)

    @staticmethod
    def _not_before(newest: CosignedHead | None, now: UnixTime) -> UnixTime:
        """Return the time to sign; a larger tree never gets an earlier one (C2SP tlog-cosignature)."""
        if newest is None or now >= newest.cosigned_at:
            return now
        origin = newest.signed.head.origin
        log(logging.WARNING, "clock_went_back", origin=origin, by_sec=newest.cosigned_at - now)
        return newest.cosigned_at

    def _newest(self, origin: str) -> CosignedHead | None:
        for heads in (self._open.changes.heads, self._written.changes.heads, self._state.heads):
            if (found := heads.get(origin)) is not None:
                return found
        return None

    def _keep(self, new: KeptContradiction) -> None:
        changes = self._open.changes
        if self._state.has_room(new, [*self._written.changes.kept, *changes.kept]):
            changes.kept.append(new)
            log(
                logging.WARNING,
                "log_contradiction",
                origin=new.origin,
                claim=new.found.claim,
                id=new.found.id,
            )

    def _adopt(self, cosigned: CosignedHead) -> None:
        """Add a cosigned checkpoint to the open batch, and remove the questions that it answers."""
        changes, origin = self._open.changes, cosigned.signed.head.origin
        changes.heads[origin] = cosigned
        changes.kept = [each for each in changes.kept if not each.is_answered_by(cosigned)]
        stored = [*self._state.contradictions.get(origin, {}).values(), *self._written.changes.kept]
        changes.answered += [each for each in stored if each.is_answered_by(cosigned)]
