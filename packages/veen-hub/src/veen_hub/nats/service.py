"""The hub as a NATS service (DR0): requests in, replies out. The rules of a request are in ``api``.

While another hub answers under the same prefix, this one does not subscribe: two hubs must never take the
same message. It asks for a status under the prefix before it subscribes and once more after; a request id of
another process shows another hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from multidict import CIMultiDict
from nats.aio.msg import Msg

from veen_core.errors import AdmissionError, ApiError, ConfigError, VeenError
from veen_core.ids import Label
from veen_core.rejection import Code
from veen_hub.api import routes
from veen_hub.api.content import CBOR
from veen_hub.api.errors import answer_error, refuse
from veen_hub.api.reply import Reply, StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.request_ids import is_own, new_request_id
from veen_hub.api.submit import SubmitCall
from veen_hub.api.whole_body import WholeBody
from veen_hub.api.whole_requests import TABLE, answer_whole
from veen_hub.hub import Hub
from veen_hub.nats.connection import Client, Error, close_nats, open_nats
from veen_hub.nats.flow import NatsFollower
from veen_hub.nats.parts import part_size
from veen_hub.nats.replies import split_reply
from veen_hub.nats.subjects import (
    CALL,
    FLOW,
    FOLLOW,
    FROM_HEADER,
    LOOK,
    METHOD_HEADER,
    NAMED,
    PATH_HEADER,
    SUBMIT,
    below,
    default_prefix,
    label_in,
)
from veen_hub.ops.config.nats import NatsSettings
from veen_hub.ops.logs import LOGGER, log

SOURCE: Final = b"NATS"
"""All requests over NATS are one source: the hub does not see their connections."""
RETRY_SEC: Final = 2.0
"""Pause before the hub tries again to connect, or to get its subjects."""
STOP_SEC: Final = 5.0
"""How long requests in progress and the ends of live streams may take when the hub stops."""
LOOK_SEC: Final = 0.5
"""How long the hub waits for another hub to answer under its prefix."""
MAX_PENDING_BYTES: Final = 64 * 1_048_576
"""Bytes of requests that wait in memory; nats-py drops further ones, and their clients repeat them."""


class NatsService:
    """Serves one hub to the clients of a NATS cluster."""

    def __init__(self, hub: Hub, settings: NatsSettings) -> None:
        self._hub = hub
        self._settings = settings
        self._context, self._secret = settings.context(), settings.secret()
        given = settings.prefix
        self.prefix = given if given is not None else default_prefix(hub.identity.hub_id)
        self._client: Client | None = None
        self._running: asyncio.Task[None] | None = None
        self._open = 0
        """Requests in progress."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._followers: dict[str, NatsFollower] = {}
        self._replies: asyncio.Queue[tuple[str, Reply]] = asyncio.Queue()
        self._unsent = 0
        """Replies that were not sent yet."""
        self._was_refused = False
        """Whether the NATS server has refused something on this connection."""
        self.serving = asyncio.Event()
        """Set while the hub is subscribed."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses under which clients reach this hub."""
        addresses = (urlsplit(server) for server in self._settings.servers)
        return tuple(f"{one.scheme}://{one.netloc}/{self.prefix}" for one in addresses)

    def start(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no further requests, answer those in progress, and disconnect; the hub has been drained."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        deadline = asyncio.get_running_loop().time() + STOP_SEC
        while self._is_busy and self.serving.is_set() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._disconnect()

    @property
    def _permissions(self) -> str:
        own = below(self.prefix, ">")
        return f"let the hub's NATS user subscribe and publish to {own}, and publish to _INBOX.>"

    @property
    def _is_busy(self) -> bool:
        return bool(self._open or self._followers or self._unsent)

    # --- the connection

    async def _run(self) -> None:
        while True:
            for server in self._settings.servers:
                try:
                    await self._serve(server)
                except (OSError, TimeoutError, Error, VeenError) as exc:
                    why = str(exc) or type(exc).__name__
                    log(logging.WARNING, "nats_unreachable", server=server, error=why)
                except Exception:  # noqa: BLE001 - logged; a bug does not end the transport
                    LOGGER.exception("nats_failed", extra={"fields": {"server": server}})
                await self._disconnect()
            await asyncio.sleep(RETRY_SEC)

    async def _serve(self, server: str) -> None:
        """Connect, subscribe, and serve until the connection is lost."""
        closed, self._was_refused = asyncio.Event(), False
        client = self._client = await open_nats(
            server,
            name=f"veen-hub {self._hub.identity.hub_id.hex()[:8]}",
            tls=self._context,
            on_closed=closed.set,
            on_refused=self._note_refusal,
            user=self._settings.user,
            secret=self._secret,
        )
        await self._check_alone(client, is_subscribed=False)
        await self._subscribe(client)
        await self._check_alone(client, is_subscribed=True)
        log(logging.INFO, "nats_serving", server=server, prefix=self.prefix)
        self.serving.set()
        sender = asyncio.create_task(self._send_replies(client))
        self._tasks.add(sender)
        sender.add_done_callback(self._tasks.discard)
        await closed.wait()  # cancelled by ``stop``, which lets the sender finish
        sender.cancel()
        log(logging.WARNING, "nats_disconnected", server=server)

    def _note_refusal(self, why: str) -> None:
        if not self._was_refused:
            self._was_refused = True
            log(logging.WARNING, "nats_refused", error=why, action=self._permissions)

    async def _check_alone(self, client: Client, *, is_subscribed: bool) -> None:
        """Raise if another hub answers under this prefix, or if the NATS server does not let this one ask."""
        inbox = await client.subscribe(below(self.prefix, f"{LOOK}.{secrets.token_hex(8)}"), max_msgs=8)
        asked = below(self.prefix, "status")
        await client.publish(asked, b"", reply=inbox.subject)
        try:
            async with asyncio.timeout(LOOK_SEC):
                while True:
                    msg = await inbox.next_msg(timeout=LOOK_SEC)
                    name = (msg.headers or {}).get("VEEN-Request-Id")
                    if name is not None and not is_own(name):
                        raise ConfigError(
                            f"another hub serves the subjects below {self.prefix or 'the root'}",
                            action="give each hub its own nats.prefix",
                        )
                    if name is None:  # the server says that no hub listens
                        return
        except TimeoutError:
            if not is_subscribed:  # the NATS server answers for a subject without subscribers
                raise ConfigError(
                    f"no answer from {asked}: another hub is busy there, or the NATS user lacks a right",
                    action=self._permissions,
                ) from None
        finally:
            with contextlib.suppress(Error):
                await inbox.unsubscribe()

    async def _subscribe(self, client: Client) -> None:
        async def take(subject: str, handler: Callable[[Msg], None]) -> None:
            async def handle(msg: Msg) -> None:
                self._take(msg, handler)

            wanted = below(self.prefix, subject)
            await client.subscribe(wanted, cb=handle, pending_bytes_limit=MAX_PENDING_BYTES)

        await take(SUBMIT, lambda msg: self._submit(msg, None))
        await take(f"{SUBMIT}.*", lambda msg: self._submit(msg, label_in(msg.subject)))
        await take(f"{FOLLOW}.*", lambda msg: self._begin(msg, self._follow(msg)))
        await take(CALL, self._call_named)
        for name, (method, path) in NAMED.items():
            if name != SUBMIT:
                await take(
                    name,
                    lambda msg, m=method, p=path: self._begin(msg, self._call(msg, m, p)),  # type: ignore[misc]
                )

        async def hear(msg: Msg) -> None:
            if (follower := self._followers.get(msg.subject.rpartition(".")[2])) is not None:
                follower.hear(msg.data)

        await client.subscribe(below(self.prefix, f"{FLOW}.*"), cb=hear)

    async def _disconnect(self) -> None:
        """Close the connection; live streams end, and replies that were not sent are lost."""
        client, self._client = self._client, None
        self.serving.clear()
        for follower in self._followers.values():
            follower.close()
        while not self._replies.empty():
            self._count_sent(self._replies.get_nowait()[1])
        if client is not None and not client.is_closed:
            await close_nats(client)

    # --- requests

    def _take(self, msg: Msg, handler: Callable[[Msg], None]) -> None:
        """Take a request, unless too many are in progress; one without a reply subject is ignored."""
        if not msg.reply:
            return
        try:
            if self._open >= self._settings.max_requests:
                raise ApiError(Code.UNAVAILABLE, "too many requests over NATS", retry_after=1)
            handler(msg)
        except (AdmissionError, ApiError) as exc:
            self._reply(msg.reply, refuse(headers_of(msg), exc, new_request_id()))

    def _call_named(self, msg: Msg) -> None:
        """Call the endpoint that the headers name."""
        headers = headers_of(msg)
        self._begin(msg, self._call(msg, headers.get(METHOD_HEADER, ""), headers.get(PATH_HEADER, "")))

    def _submit(self, msg: Msg, label: Label | None) -> None:
        call = SubmitCall(self._hub, headers_of(msg), None, new_request_id(), label=label, source=SOURCE)
        self._open += 1
        call.run(msg.data, partial(self._end, msg.reply))

    def _end(self, to: str, reply: Reply) -> None:
        self._open -= 1
        self._reply(to, reply)

    def _begin(self, msg: Msg, work: Awaitable[Reply | None]) -> None:
        """Start a request that may wait; its reply is sent when it is ready."""
        self._open += 1
        task = asyncio.ensure_future(self._answer(msg, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, msg: Msg, work: Awaitable[Reply | None]) -> None:
        try:
            reply = await work
        except Exception as exc:  # noqa: BLE001 - a bug is answered too
            reply = answer_error(exc, headers_of(msg), msg.subject, new_request_id())
        finally:
            self._open -= 1
        if reply is not None:
            self._reply(msg.reply, reply)

    async def _call(self, msg: Msg, method: str, target: str) -> Reply:
        headers = headers_of(msg)
        return await answer_whole(
            self._hub, "NATS", method=method, target=target, headers=headers, body=msg.data
        )

    async def _follow(self, msg: Msg) -> None:
        """Serve one live stream to its end."""
        if len(self._followers) >= self._settings.max_followers:
            raise ApiError(Code.UNAVAILABLE, "too many live streams over NATS", retry_after=5)
        label, client = label_in(msg.subject), self._client
        follower = NatsFollower(self._hub.config.listen.follower_timeout_sec)
        self._followers[follower.id] = follower
        self._open -= 1  # a live stream may stay open for days, and has a bound of its own
        try:
            headers = headers_of(msg)
            route, variables = TABLE.find("GET", f"/v1/stream/{label.hex()}")
            request = ApiRequest(
                hub=self._hub,
                method="GET",
                path=f"/v1/stream/{label.hex()}",
                request_id=new_request_id(),
                headers=headers,
                content=WholeBody(b""),
                peer=follower,
                query={"from": headers.get(FROM_HEADER, "1")},
                variables=variables,
            )
            reply = await routes.call(route, request)
            assert isinstance(reply, StreamedReply)
            if client is not None:
                subject = below(self.prefix, f"{FLOW}.{follower.id}")
                await follower.send(client, msg.reply, subject, reply)
        except (OSError, Error) as exc:
            log(logging.DEBUG, "nats_follower_lost", error=str(exc) or type(exc).__name__)
        finally:
            self._open += 1
            follower.close()
            del self._followers[follower.id]

    # --- replies

    def _reply(self, to: str, reply: Reply) -> None:
        self._hub.unsent += len(reply.body)
        self._unsent += 1
        self._replies.put_nowait((to, reply))

    def _count_sent(self, reply: Reply) -> None:
        self._hub.unsent -= len(reply.body)
        self._unsent -= 1

    async def _send_replies(self, client: Client) -> None:
        """Send replies in order; one that cannot be sent is lost, and its client asks again."""
        while True:
            to, reply = await self._replies.get()
            try:
                for headers, payload in split_reply(reply, part_size(client.max_payload)):
                    await client.publish(to, payload, headers=headers)
            except (OSError, Error, ValueError) as exc:
                log(logging.DEBUG, "nats_reply_lost", error=str(exc) or type(exc).__name__)
            except Exception:  # noqa: BLE001 - logged; a bug does not keep later replies
                LOGGER.exception("nats_reply_failed")
            finally:
                self._count_sent(reply)


def headers_of(msg: Msg) -> CIMultiDict[str]:
    """Return the headers of a request. NATS has one value per field: cookies are separated by commas."""
    headers = CIMultiDict(msg.headers or {})
    headers.setdefault("Content-Length", str(len(msg.data)))
    if "Content-Type" not in headers:
        headers["Content-Type"] = CBOR
    if (cookies := headers.get("VEEN-PoW")) is not None:
        del headers["VEEN-PoW"]
        headers.extend(("VEEN-PoW", cookie.strip()) for cookie in cookies.split(","))
    return headers
