"""The operation runner performs each accepted operation once (spec-3 2.5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from memory_log import LABEL, READER, WRITER, MemoryLog
from test_operations import FUNDED, A, B, pay

from veen_core.ids import UnixTime
from veen_overlays.live import Materializer, OperationFailedError, OperationRunner, PendingOperation
from veen_overlays.operations.overlays import PAYMENTS
from veen_overlays.operations.results import RESULTS
from veen_overlays.schema.record import Record
from veen_overlays.summary_tree.store import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.time = UnixTime(1_700_000_000)

    def now(self) -> UnixTime:
        return self.time


class Shop:
    """A stream with a funded account, and runners that may die at any write."""

    def __init__(self) -> None:
        self.log, self.clock = MemoryLog(), Clock()
        self.calls: list[PendingOperation] = []
        self.effects: set[bytes] = set()
        self.log.write(*(record for _, _, record in FUNDED))
        self.dies_at: int | None = None

    async def send(self, record: Record) -> None:
        if self.dies_at == 0:
            raise ConnectionError("killed")
        self.dies_at = None if self.dies_at is None else self.dies_at - 1
        self.log.write(record)

    async def translate(self, pending: PendingOperation) -> Any:
        self.calls.append(pending)
        assert pending.operation_id not in self.effects or pending.retried
        self.effects.add(pending.operation_id)
        return {"text": "bonjour"}

    async def fail(self, pending: PendingOperation) -> Any:
        self.calls.append(pending)
        raise OperationFailedError("no such language")

    async def runner(self, **handlers: Any) -> OperationRunner:
        operations = Materializer(PAYMENTS, LABEL, self.log, key=READER, store=MemoryStore())
        results = Materializer(RESULTS, LABEL, self.log, key=READER, store=MemoryStore())
        await operations.open()
        await results.open()
        return OperationRunner(
            operations,
            results,
            handlers or {"translate": self.translate},
            send=self.send,
            runner=WRITER.public,
            clock=self.clock,
        )

    async def results(self) -> list[Any]:
        view = Materializer(RESULTS, LABEL, self.log, key=READER, store=MemoryStore())
        await view.open()
        await view.catch_up()
        return list((await view.state()).view)


def test_an_accepted_operation_is_performed_once_and_a_refused_one_never() -> None:
    async def check() -> None:
        shop = Shop()
        shop.log.write(pay(4), pay(400), pay(3))
        runner = await shop.runner()
        assert [await runner.run_pending(), await runner.run_pending()] == [2, 0]
        assert [call.paid.amount for call in shop.calls] == [4, 3]
        assert [row["outcome"] for row in await shop.results()] == ["done", "done"]
        assert await (await shop.runner()).run_pending() == 0, "nor after a restart without its disk"

    asyncio.run(check())


@pytest.mark.parametrize("writes", [0, 1], ids=["before the claim", "before the result"])
def test_a_runner_that_dies_performs_the_operation_after_its_restart(writes: int) -> None:
    async def check() -> None:
        shop = Shop()
        shop.log.write(pay(4))
        shop.dies_at = writes
        with pytest.raises(ConnectionError):
            await (await shop.runner()).run_pending()
        shop.dies_at = None
        assert await (await shop.runner()).run_pending() == 1
        assert [call.retried for call in shop.calls] == ([False, True] if writes else [False])
        assert len({call.operation_id for call in shop.calls}) == len(shop.effects) == 1

    asyncio.run(check())


def test_an_operation_is_not_performed_after_its_ttl() -> None:
    async def check() -> None:
        shop = Shop()
        shop.log.write(replace(pay(4), ttl_seconds=10))
        shop.clock.time = UnixTime(shop.log.now + 11)
        assert await (await shop.runner()).run_pending() == 1
        assert (shop.calls, [row["outcome"] for row in await shop.results()]) == ([], ["expired"])

    asyncio.run(check())


def test_a_failure_is_recorded_and_not_repeated() -> None:
    async def check() -> None:
        shop = Shop()
        shop.log.write(pay(4))
        runner = await shop.runner(translate=shop.fail)
        assert await runner.run_pending() == 1
        assert await (await shop.runner(translate=shop.fail)).run_pending() == 0
        assert [row["reason"] for row in await shop.results()] == ["no such language"]

    asyncio.run(check())


def test_operations_of_other_types_are_left_alone() -> None:
    async def check() -> None:
        shop = Shop()
        shop.log.write(pay(4, A, B))
        assert await (await shop.runner(store_file=shop.translate)).run_pending() == 0
        assert await shop.results() == []

    asyncio.run(check())
