"""The operation runner: performs paid operations, once each, across crashes (spec-3 2.5, P1, P2).

For each paid operation that the domain has accepted, in stream order:

1. The runner writes a claim to the log and waits for its receipt.
2. It calls the handler of the operation's type, with the operation_id.
3. It writes the result to the log. An operation with a result is never performed again.

What "once" means: the handler is called again, with the same operation_id and ``retried`` set, if the runner
was killed after the claim and before the result was durable. Nothing can tell whether the first call had its
effect. So the effect is exactly-once if the handler keys it by operation_id (P2): a handler that stores the
operation_id in the same transaction as its effect finds it there and does nothing. Without a crash the
handler is called once. All state is in the log: a runner that has lost its disk continues where it stopped.

One runner performs a stream's operations. Two runners with different keys do not see each other's claims;
two processes with one key both perform an operation that neither has finished.

A ``ttl_seconds`` counts from the receipt's hub_ts, the earliest time that can be proved: the MSG carries no
time. The hub cannot enforce it, because the body is encrypted. An operation that the runner finds after its
ttl is not performed, and its result says so. Its payment stays: pay it back with an operation that names it
as parent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from veen_core.errors import VeenError
from veen_core.ids import OperationId
from veen_core.msg import operation_id
from veen_core.protocols import Clock
from veen_overlays.fold.event import Message
from veen_overlays.live.epochs import EpochView
from veen_overlays.live.materializer import Materializer
from veen_overlays.operations.domain.delegated import embedded_of
from veen_overlays.operations.domain.state import DomainState
from veen_overlays.operations.overlays import DomainCourse, state_after
from veen_overlays.operations.payment import PaidOperation
from veen_overlays.operations.results import Claim, Result, ResultState, claimed, result_of
from veen_overlays.schema.record import Record


class OperationFailedError(Exception):
    """Raised by a handler whose operation must not be retried; the text becomes the result's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOperation:
    """An accepted operation that has no result."""

    operation_id: OperationId
    seq: int
    paid: PaidOperation
    hub_ts: int | None
    retried: bool
    """Whether an earlier call may have had its effect: the operation was claimed before this run."""


Handler = Callable[[PendingOperation], Awaitable[Any]]
"""Performs an operation and returns its result, a CBOR value without floats."""
Send = Callable[[Record], Awaitable[object]]
"""Sends a record to the stream of results; the record is durable when it returns."""
DomainView = Materializer[DomainCourse] | EpochView[DomainCourse]
ResultView = Materializer[ResultState] | EpochView[ResultState]


class OperationRunner:
    """Performs the paid operations of one stream; its views must be open."""

    def __init__(
        self,
        operations: DomainView,
        results: ResultView,
        handlers: Mapping[str, Handler],
        *,
        send: Send,
        runner: bytes,
        clock: Clock,
    ) -> None:
        """``handlers`` by operation_type; operations of other types are ignored.

        ``runner`` is the client_id that signs what ``send`` sends: only its claims and results count.
        """
        self._operations, self._results, self._handlers = operations, results, handlers
        self._send, self._runner, self._clock = send, bytes(runner), clock
        self._next = 1

    async def run_pending(self) -> int:
        """Perform every accepted operation that has no result yet; return how many were finished.

        An exception of a handler other than ``OperationFailedError`` ends the run without a result; the next
        run calls the handler again.
        """
        await self._operations.catch_up()
        await self._results.catch_up()
        state = state_after((await self._operations.state()).summary.inner)
        results = (await self._results.state()).summary.inner
        finished = 0
        while self._next <= self._operations.size:
            message = await self._operations.message(self._next)
            pending = self._pending(message, state, results)
            if pending is not None:
                await self._finish(pending)
                finished += 1
            self._next += 1
        return finished

    def _pending(self, message: Message, state: DomainState, results: ResultState) -> PendingOperation | None:
        """The operation of a message, if it was accepted, has a handler, and has no result."""
        name = operation_id(message.origin)
        outcome = state.outcome(name)
        if outcome is None or outcome.seq != message.seq or outcome.refusal:
            return None
        paid = embedded_of(outcome.record)
        if not isinstance(paid, PaidOperation) or paid.operation_type not in self._handlers:
            return None
        if result_of(results, name, self._runner) is not None:
            return None
        return PendingOperation(
            operation_id=name,
            seq=message.seq,
            paid=paid,
            hub_ts=message.hub_ts,
            retried=claimed(results, name, self._runner),
        )

    async def _finish(self, pending: PendingOperation) -> None:
        name = pending.operation_id
        if not pending.retried:
            if self._is_late(pending):
                await self._send(
                    Result(operation_id=name, outcome="expired", reason="ttl_seconds has passed")
                )
                return
            await self._send(Claim(operation_id=name))  # durable before the handler may have an effect
        try:
            value = await self._handlers[pending.paid.operation_type](pending)
        except OperationFailedError as exc:
            await self._send(Result(operation_id=name, outcome="failed", reason=str(exc)))
            return
        made = Result(operation_id=name, outcome="done", result=value)
        try:
            made.encode()
        except VeenError as exc:
            made = Result(operation_id=name, outcome="done", reason=f"the result has no CBOR form: {exc}")
        await self._send(made)

    def _is_late(self, pending: PendingOperation) -> bool:
        ttl = pending.paid.ttl_seconds
        return ttl is not None and pending.hub_ts is not None and self._clock.now() > pending.hub_ts + ttl
