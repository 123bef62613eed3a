"""NATS to one hub (DR0): requests to its subjects, replies in parts, live streams with flow control.

The address is ``nats://host[:port]/prefix``, or ``tls://…`` to insist on TLS; the prefix is the hub's, which
``veen.<hub_id>`` usually is. User and password, or a token alone, may stand before the host.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from nats.aio.msg import Msg

from veen_core import cbor
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.rejection import Code
from veen_hub.client.errors import Misbehaved, TooLarge, Unreachable
from veen_hub.client.wire.transport import (
    CBOR,
    MAX_CONCURRENT_REQUESTS,
    MAX_ERROR_BYTES,
    MAX_RESPONSE_BYTES,
    HubResponse,
    HubTransport,
    Timeouts,
    Tls,
    no_answer,
    refused,
)
from veen_hub.nats.connection import Client, Error, close_nats, open_nats
from veen_hub.nats.parts import (
    ALIVE_SEC,
    END,
    END_WORD,
    FLOW_SUBJECT,
    HEADER_RESERVE_BYTES,
    MAX_UNREAD_BYTES,
    MAX_UNREAD_PARTS,
    PART,
    PARTS,
    STATUS,
    number_in,
)
from veen_hub.nats.subjects import (
    CALL,
    FOLLOW,
    FROM_HEADER,
    METHOD_HEADER,
    PATH_HEADER,
    SUBJECT_OF,
    SUBMIT,
    below,
    is_prefix,
)

LABEL_AT: Final = slice(42, 74)
"""Where a submit envelope has the label of its message."""
STREAM_PATH: Final = "/v1/stream/"
ACK_PARTS: Final = MAX_UNREAD_PARTS // 4
ACK_BYTES: Final = MAX_UNREAD_BYTES // 4
"""A follower reports its progress to the hub after this many parts or bytes."""
NO_RESPONDERS: Final = "503"
"""Status that the NATS server sends in place of a reply if no hub has subscribed."""


class _Exchange:
    """One request under way: the messages of its reply, as they arrive."""

    def __init__(self, max_bytes: int) -> None:
        self._arrived: asyncio.Queue[Msg | Exception] = asyncio.Queue()
        self._room = max_bytes

    def add(self, item: Msg | Exception) -> None:
        if isinstance(item, Msg):
            self._room -= len(item.data)
            if self._room < 0:
                item = Misbehaved("the reply over NATS is larger than it may be")
        self._arrived.put_nowait(item)

    async def next(self, timeout: float | None = None) -> Msg:
        """Return the next message; raises why there is none."""
        async with asyncio.timeout(timeout):
            item = await self._arrived.get()
        if isinstance(item, Exception):
            raise item
        return item

    def consume(self, size: int) -> None:
        """Make room for as many bytes again."""
        self._room += size


class NatsTransport(HubTransport):
    """Requests to the hub at ``url``. Create it inside a running event loop."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self._server, self._login, self._prefix = _parse_address(url)
        self.url = f"{self._server}/{self._prefix}"
        self.timeouts = timeouts
        uses_tls = tls is not None or self._server.startswith("tls://")
        self._context = (tls or Tls()).context() if uses_tls else None
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._exchanges: dict[str, _Exchange] = {}
        self._inbox = ""
        self._numbers = 0
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._client is not None and not self._client.is_closed:
            await close_nats(self._client)

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        *,
        max_bytes: int = MAX_RESPONSE_BYTES,
        timeout: float | None = None,
    ) -> HubResponse:
        joined = {k: v if isinstance(v, str) else ", ".join(v) for k, v in (headers or {}).items()}
        subject, given = self._address(method, path, body or b"", joined)
        limit = self.timeouts.request if timeout is None else timeout
        try:
            async with self._slots, asyncio.timeout(limit), self._open(max_bytes + MAX_ERROR_BYTES) as opened:
                client, token, exchange = opened
                payload = body or b"" if not given.get(PATH_HEADER, "").startswith("/v1/attachment/") else b""
                await self._publish(client, subject, token, payload, given)
                return await _whole_reply(exchange, await exchange.next())
        except (Error, OSError) as exc:
            raise self._no_answer(exc, f"{method} {path}") from exc

    @asynccontextmanager
    async def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        if not path.startswith(STREAM_PATH):
            body = await self.call(method, path, timeout=timeout)
            yield _one(body)
            return
        label, _, query = path.removeprefix(STREAM_PATH).partition("?")
        start = parse_qs(query).get("from", ["1"])[0]
        try:
            async with self._open(2 * MAX_UNREAD_BYTES) as (client, token, exchange):
                subject = below(self._prefix, f"{FOLLOW}.{label}")
                await self._publish(client, subject, token, b"", {FROM_HEADER: start})
                first = await exchange.next(self.timeouts.request)
                if _status_of(first) != 200:
                    raise refused(await _whole_reply(exchange, first))
                flow = _Flow(client, (first.headers or {}).get(FLOW_SUBJECT, ""), exchange)
                try:
                    yield flow.parts(idle)
                finally:
                    await flow.close()
        except (Error, OSError) as exc:
            raise self._no_answer(exc, f"{method} {path}") from exc

    # --- the connection

    @asynccontextmanager
    async def _open(self, max_bytes: int) -> AsyncIterator[tuple[Client, str, _Exchange]]:
        """Begin an exchange on the connection, which is made if there is none."""
        client = await self._connected()
        self._numbers += 1
        token = str(self._numbers)
        exchange = self._exchanges[token] = _Exchange(max_bytes)
        try:
            yield client, f"{self._inbox}.{token}", exchange
        finally:
            del self._exchanges[token]

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._closed:
                raise StateError(f"{self.url}: this connection is closed", action="connect again")
            if self._client is not None and self._client.is_connected:
                return self._client
            user, secret = self._login
            client = await open_nats(
                self._server,
                name="veen-client",
                tls=self._context,
                on_closed=self._lost,
                on_refused=self._refused,
                user=user,
                secret=secret,
                timeout=self.timeouts.connect,
            )
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._arrived)
            self._client = client
            return client

    async def _arrived(self, msg: Msg) -> None:
        exchange = self._exchanges.get(msg.subject.rpartition(".")[2])
        if exchange is not None:  # else the caller has given up
            exchange.add(msg)

    def _lost(self) -> None:
        """Fail all requests under way: their replies cannot arrive any more."""
        self._fail(ConnectionResetError("the NATS server has closed the connection"))

    def _refused(self, why: str) -> None:
        """Fail all requests under way: NATS does not say which of them it has refused."""
        self._fail(PermissionError(f"the NATS server refuses: {why}"))

    def _fail(self, failure: Exception) -> None:
        for exchange in self._exchanges.values():
            exchange.add(failure)

    async def _publish(
        self, client: Client, subject: str, reply_to: str, payload: bytes, headers: Mapping[str, str]
    ) -> None:
        limit = (
            client.max_payload - HEADER_RESERVE_BYTES - sum(len(k) + len(v) + 4 for k, v in headers.items())
        )
        if len(payload) > limit:
            raise TooLarge(
                Code.LIMIT,
                f"the request has {len(payload)} bytes, and the NATS server takes {limit}",
                action="ask the operator of NATS for a larger max_payload, or send this message over HTTP",
            )
        await client.publish(subject, payload, reply=reply_to, headers=dict(headers))

    # --- subjects

    def _address(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[str, dict[str, str]]:
        """Return subject and headers of a request."""
        name = SUBJECT_OF.get((method, path))
        if name == SUBMIT and (label := _only_label(body, headers.get("Content-Type", CBOR))) is not None:
            return below(self._prefix, f"{SUBMIT}.{label.hex()}"), headers
        if name is not None:
            return below(self._prefix, name), headers
        return below(self._prefix, CALL), headers | {METHOD_HEADER: method, PATH_HEADER: path}

    def _no_answer(self, error: Exception, what: str) -> Unreachable:
        if isinstance(error, NobodyListensError):
            return Unreachable(
                f"{self.url}: no hub listens there ({what})",
                action="check that the hub runs, and the prefix after the host (usually veen.<hub_id>)",
            )
        if isinstance(error, PermissionError):
            return Unreachable(
                f"{self.url}: {error} ({what})",
                action="ask the operator of NATS for the right to publish below the prefix",
            )
        if "authorization" in str(error).lower():
            return Unreachable(
                f"{self.url}: the NATS server refuses the login",
                retryable=False,
                action="present a client certificate (--cert and --cert-key), or user:password in Python",
            )
        return no_answer(self.url, error, what)


class NobodyListensError(ConnectionError):
    """No hub has subscribed to the subject."""


class _Flow:
    """The client's side of a live stream: parts in order, and reports to the hub of what was consumed."""

    def __init__(self, client: Client, subject: str, exchange: _Exchange) -> None:
        self._client, self._subject, self._exchange = client, subject, exchange
        self._consumed = 1
        self._unsaid = self._unsaid_bytes = 0
        """Parts and bytes that were consumed, and that the hub has not been told of."""
        self._beating = asyncio.create_task(self._beat())

    async def parts(self, idle: float | None) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the stream until the hub ends it."""
        while True:
            msg = await self._exchange.next(idle)
            headers = msg.headers or {}
            if END in headers:
                return
            try:
                number = number_in(headers, PART)
            except DecodeError as exc:
                raise Misbehaved(f"a part of a live stream over NATS: {exc}") from None
            if number != self._consumed + 1:
                raise ConnectionResetError("NATS has dropped a part of the live stream")
            yield msg.data
            self._consumed = number
            self._exchange.consume(len(msg.data))
            self._unsaid, self._unsaid_bytes = self._unsaid + 1, self._unsaid_bytes + len(msg.data)
            if self._unsaid >= ACK_PARTS or self._unsaid_bytes >= ACK_BYTES:
                await self._say(str(self._consumed).encode())

    async def _say(self, payload: bytes) -> None:
        self._unsaid = self._unsaid_bytes = 0
        await self._client.publish(self._subject, payload)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SEC / 2)
            with contextlib.suppress(Error, OSError):
                await self._say(str(self._consumed).encode())

    async def close(self) -> None:
        self._beating.cancel()
        with contextlib.suppress(Error, OSError):
            await self._say(END_WORD)


async def _one(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _status_of(msg: Msg) -> int:
    headers = msg.headers or {}
    if STATUS not in headers and headers.get("Status") == NO_RESPONDERS:
        raise NobodyListensError
    try:
        return number_in(headers, STATUS)
    except DecodeError as exc:
        raise Misbehaved(f"the reply over NATS is not a hub's: {exc}") from None


async def _whole_reply(exchange: _Exchange, first: Msg) -> HubResponse:
    """Collect the parts of a reply."""
    status, headers = _status_of(first), first.headers or {}
    parts = [first.data]
    try:
        count = number_in(headers, PARTS) if PARTS in headers else 1
        for number in range(2, count + 1):
            msg = await exchange.next()
            if number_in(msg.headers or {}, PART) != number:
                raise ConnectionResetError("NATS has dropped a part of the reply")
            parts.append(msg.data)
    except DecodeError as exc:
        raise Misbehaved(f"a part of a reply over NATS: {exc}") from None
    return HubResponse(status, {name.lower(): value for name, value in headers.items()}, b"".join(parts))


def _only_label(body: bytes, content_type: str) -> bytes | None:
    """Return the label of all messages of a submit; None if there are several, or it cannot be told."""
    if content_type == CBOR:
        return body[LABEL_AT] if len(body) > LABEL_AT.stop else None
    labels, at = set[bytes](), 0
    try:
        while at < len(body) and len(labels) < 2:
            labels.add(body[at + LABEL_AT.start : at + LABEL_AT.stop])
            at = cbor.item_end(body, at)
    except DecodeError:
        return None
    label = labels.pop() if len(labels) == 1 else b""
    return label if len(label) == 32 else None


def _parse_address(url: str) -> tuple[str, tuple[str | None, str | None], str]:
    """Return server, login and prefix of an address."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        if parts.scheme in ("nats", "tls") and parts.hostname and is_prefix(prefix) and url.isascii():
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            user = unquote(parts.username) if parts.username is not None else None
            secret = unquote(parts.password) if parts.password is not None else None
            login = (user, secret) if secret is not None else (None, user)
            return f"{parts.scheme}://{host}:{parts.port or 4222}", login, prefix
    raise ConfigError(
        "the address is not nats://host[:port]/prefix",
        action="write an address like tls://nats.example:4222/veen.<hub_id>",
    )
