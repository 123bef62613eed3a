"""A service: methods by decorator, and exchanges of other overlays, that a server offers (RPC0.1).

    service = Service()

    @service.method("translate")
    async def translate(text: str, to: str = "de") -> str: ...

    @service.method("charge", at_most_once=True)
    def charge(cents: int, call: Call) -> dict[str, int]: ...

Parameters and result are checked against the annotations (``veen_overlays.rpc.arguments``). A plain function
runs in a thread, a coroutine on the event loop. ``CallError`` becomes the error of the reply; any other
exception becomes ``rpc.internal`` without its text. A method that returns None replies an empty map, because
an absent optional is never null (B2).

A method may run again if the server dies between its effect and the reply. ``call.key`` is the same then, and
for every request with the same ``(method, client_id, idem)``: key effects by it. ``at_most_once=True``
instead replies ``rpc.interrupted`` if a server died while the method ran; it costs one more message per call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from veen_core.errors import EncodeError
from veen_core.ids import ClientId
from veen_overlays.rpc.arguments import ArgumentError, MethodSignature
from veen_overlays.rpc.exchange import BAD_ARGS, INTERNAL, RPC, UNKNOWN_METHOD, Exchange
from veen_overlays.rpc.records import CallKey, Reply, Request
from veen_overlays.schema.record import Record

LOGGER: Final = logging.getLogger("veen.rpc")
F = TypeVar("F", bound=Callable[..., Any])


class CallError(Exception):
    """A failure that a method reports to its caller: a code of the application, and a detail."""

    def __init__(self, code: str, detail: str | None = None) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code, self.detail = code, detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call that a method runs for; the server passes it to a parameter of this type."""

    key: CallKey
    """The same for all requests and all runs of one call: key effects by it (RPC0.3)."""
    method: str
    client_id: ClientId
    """The key that signed the request."""
    idem: int | None
    request: bytes
    """The MsgID of the request."""
    hub_ts: int
    timeout_ms: int | None
    stream_seq: int


Handler = Callable[[Any, Call], Awaitable[Record]]
"""Handles the request record of an exchange; returns the reply record."""


class AnyArguments:
    """The signature of a function that takes the arguments of a call as they are, and the call."""

    call_parameter: str | None = "call"

    def bind(self, args: Any) -> dict[str, Any]:
        return {"args": args}

    def check_result(self, value: Any) -> None:
        """Accept every result."""

    def __str__(self) -> str:
        return "(any) -> any"


@dataclass(frozen=True, slots=True)
class Method:
    """A function that is offered as a method."""

    name: str
    function: Callable[..., Any]
    signature: MethodSignature | AnyArguments
    at_most_once: bool = False

    @property
    def help(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    async def run(self, args: dict[str, Any], call: Call, threads: Executor) -> Any:
        if self.signature.call_parameter is not None:
            args = {**args, self.signature.call_parameter: call}
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**args)
        return await asyncio.get_running_loop().run_in_executor(threads, partial(self.function, **args))


@dataclass(slots=True)
class Service:
    """The methods and exchanges that a server offers."""

    methods: dict[str, Method] = field(default_factory=dict)
    exchanges: dict[Exchange, tuple[str, Handler]] = field(default_factory=dict)

    def method(self, name: str, *, at_most_once: bool = False) -> Callable[[F], F]:
        """Offer a function as a method."""

        def declare(function: F) -> F:
            if name in self.names:
                raise ValueError(f"method {name!r} is declared twice")
            self.methods[name] = Method(name, function, MethodSignature.of(function, Call), at_most_once)
            return function

        return declare

    def add_untyped(
        self, name: str, function: Callable[[Any, Call], Awaitable[Any]], *, at_most_once: bool = False
    ) -> None:
        """Offer a coroutine function of ``args`` and ``call``, without checks of types."""
        if name in self.names:
            raise ValueError(f"method {name!r} is declared twice")
        self.methods[name] = Method(name, function, AnyArguments(), at_most_once)

    def serve(self, exchange: Exchange, method: str, handler: Handler) -> None:
        """Answer the requests of another overlay's exchange, as ``method`` of the announcements (P16)."""
        if method in self.names:
            raise ValueError(f"method {method!r} is declared twice")
        self.exchanges[exchange] = method, handler

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that the server announces."""
        return tuple(sorted((*self.methods, *(name for name, _ in self.exchanges.values()))))

    def runs_at_most_once(self, method: str) -> bool:
        found = self.methods.get(method)
        return found is not None and found.at_most_once

    async def answer(self, exchange: Exchange, request: Record, call: Call, threads: Executor) -> Record:
        """Run a request and return its reply; a failure of the method is a reply too.

        Plain functions run in ``threads``.
        """
        try:
            if exchange is not RPC and exchange in self.exchanges:
                return await self.exchanges[exchange][1](request, call)
            assert isinstance(request, Request)
            return await self._run(request, call, threads)
        except ArgumentError as exc:
            return exchange.failed(BAD_ARGS, str(exc))
        except CallError as exc:
            return exchange.failed(exc.code, exc.detail)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the server ends; the method did not raise this by itself
            return _internal(exchange, call)
        except (Exception, SystemExit):  # noqa: BLE001 - the caller sees no internals, and no request stops the server
            return _internal(exchange, call)

    async def _run(self, request: Request, call: Call, threads: Executor) -> Record:
        method = self.methods.get(request.method)
        if method is None:
            return RPC.failed(UNKNOWN_METHOD, f"the methods are {', '.join(self.names) or 'none'}")
        args = method.signature.bind(request.args)
        result = await method.run(args, call, threads)
        method.signature.check_result(result)
        reply = Reply(ok=True, result={} if result is None else result)
        _check_encodes(reply)
        return reply


def _internal(exchange: Exchange, call: Call) -> Record:
    LOGGER.exception("rpc_method_failed", extra={"fields": {"method": call.method, "call": call.key.hex()}})
    return exchange.failed(INTERNAL, None)


def _check_encodes(reply: Reply) -> None:
    try:
        reply.encode()
    except EncodeError as exc:
        raise TypeError(f"the result cannot be a record: {exc}") from None
