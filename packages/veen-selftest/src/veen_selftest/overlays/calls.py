"""Calls over a stream of the hub: a method runs once for each idempotency key (RPC0, P15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from veen_hub.client import Hub, Identity
from veen_overlays.live.rpc import (
    Call,
    CallError,
    RpcClient,
    RpcError,
    RpcServer,
    Service,
    StreamAccess,
    access,
    connect_rpc,
)
from veen_overlays.rpc.exchange import NO_SERVER, UNKNOWN_METHOD
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import connected, writable_hub
from veen_selftest.runner.check import Check, ClauseViolation, require_equal
from veen_selftest.runner.context import CheckContext

CALL_SECONDS: Final = 20.0
IDEM: Final = 17
REFUSED: Final = "math.negative"


class CountingService:
    """A service with one method, and the number of its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.service = Service()
        self.service.method("root")(self._root)

    async def _root(self, square: int, call: Call) -> int:
        del call
        self.runs += 1
        if square < 0:
            raise CallError(REFUSED, "no number has this square")
        return int(square**0.5)


def _calls(context: CheckContext) -> None:
    """A method runs once for each idempotency key, also if another server answers the second call."""
    asyncio.run(_call_twice(context, writable_hub(context)))


async def _call_twice(context: CheckContext, hub: HttpHub) -> None:
    operator, caller, reader = (Identity.generate(context.rng.randbytes) for _ in range(3))
    name = context.stream_name("calls")

    def at(connection: Hub) -> StreamAccess:
        return access(connection.stream(name, readers=reader.dh_keys), connection.log_reader())

    async with connected(hub, caller) as own:
        first = CountingService()
        async with _serving(hub, operator, first, at), connect_rpc(at(own)) as client:
            require_equal(await _answer(client, 49), 7, "answer to the first call")
            require_equal(await _answer(client, 81), 7, "answer to a repeated key (RPC0.3)")
            require_equal(await _answer(client, -1, idem=IDEM + 1), REFUSED, "code of a call that fails")
            require_equal(await _code(client, "cube"), UNKNOWN_METHOD, "code of an unknown method")
        require_equal(first.runs, 2, "runs of the method for three calls with two keys (RPC0.3)")
        second = CountingService()
        async with _serving(hub, operator, second, at), connect_rpc(at(own)) as client:
            require_equal(await _answer(client, 81), 7, "answer of a server without memory (P15)")
        require_equal(second.runs, 0, "runs of an answered call at a server without memory (P15)")
        async with connect_rpc(at(own)) as client:
            require_equal(await _code(client, "root"), NO_SERVER, "code of a call after the last server left")


@asynccontextmanager
async def _serving(
    hub: HttpHub, operator: Identity, counter: CountingService, at: Any
) -> AsyncIterator[None]:
    """Serve until the end of the block; a server that fails is a violation."""
    async with connected(hub, operator) as connection:
        server = RpcServer(counter.service, at(connection), operator.signing_key)
        running = asyncio.create_task(server.run())
        announced = asyncio.create_task(server.announced.wait())
        done, _ = await asyncio.wait(
            (running, announced), timeout=CALL_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        try:
            if announced not in done:
                raise ClauseViolation(f"no announcement of the server is in the log after {CALL_SECONDS} s")
            yield
        finally:
            announced.cancel()
            server.stop()
            await running


async def _answer(client: RpcClient, square: int, *, idem: int = IDEM) -> Any:
    """Call ``root``; return its result, or the code of its error."""
    try:
        return await client.call("root", {"square": square}, timeout=CALL_SECONDS, idem=idem)
    except RpcError as exc:
        return exc.code


async def _code(client: RpcClient, method: str) -> str:
    try:
        return f"answered {await client.call(method, {'square': 4}, timeout=CALL_SECONDS)}"
    except RpcError as exc:
        return exc.code


CHECKS: Final = (Check("overlay.calls", "RPC0.1 to 0.3, P15", _calls),)
