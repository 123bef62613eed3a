"""The connections of a hub, with a direct way for submits.

A submit that arrived whole is handled without aiohttp's task, request and response objects, which cost as
much as verifying and signing the message: 256 raw clients got 2,380 submits/s this way and 1,680 through
aiohttp's handler (2 cores). aiohttp's parser reads both, and ``SubmitCall`` applies the same rules to both.

The private names of aiohttp used here, besides those of ``bounded_connection``, are ``_waiter``, ``_parser``
and the keep-alive timer; ADR 0009 says what each is needed for.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from aiohttp import HttpVersion11, StreamReader, web

from veen_core.errors import AdmissionError, ApiError
from veen_hub.api.content import check_body, over_the_cap
from veen_hub.api.request_ids import new_request_id
from veen_hub.api.submit import SubmitCall
from veen_hub.http.bounded_connection import BoundedConnection, check_head_size
from veen_hub.http.errors import from_http
from veen_hub.http.replies import refusal_bytes, to_bytes
from veen_hub.hub import Hub
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.failures import internal_error

if TYPE_CHECKING:
    from veen_hub.http.listener import Listener

SUBMIT_PATH: Final = "/v1/submit"


class Connection(BoundedConnection):
    """One client's connection to a hub."""

    __slots__ = ("_held", "_hub", "_resting", "_submit", "_takes_submits")

    def __init__(
        self, listener: Listener, server: web.Server, loop: asyncio.AbstractEventLoop, hub: Hub
    ) -> None:
        super().__init__(listener, server, loop)
        self._hub = hub
        self._takes_submits = listener.takes_submits
        self._resting = listener.resting
        self._submit: SubmitCall | None = None
        """The direct submit in progress."""
        self._held = b""
        """Bytes that arrived behind it."""

    def translate(self, request: web.BaseRequest, refused: web.HTTPException) -> ApiError:
        return from_http(request, refused)

    # --- data

    def data_received(self, data: bytes) -> None:
        """Parse data; handle a whole submit directly, and leave every other request to aiohttp."""
        if self._submit is not None:  # answers keep the order of their requests
            self._held += data
            self._pause_transport_reading()
            return
        waiter = self._waiter
        idle = not waiter.done() if waiter is not None else self._request_count == 0
        if not idle or self._messages or self.writing_paused:
            self._parse(data)
            return
        self._waiter = None  # the loop in start() must not wake up for a direct submit
        try:
            self._parse(data)
        finally:
            self._waiter = waiter
        if self._close or self._force_close:
            if waiter is not None:
                waiter.cancel()
        elif len(self._messages) == 1 and self._is_whole_submit(*self._messages[0]):
            message, payload = self._messages.popleft()
            assert self._parser is not None
            self._parser.message_consumed()
            self._begin_submit(message, payload)
        elif self._messages and waiter is not None:
            waiter.set_result(None)

    def _is_whole_submit(self, message: Any, payload: StreamReader) -> bool:
        return (
            getattr(message, "path", None) == SUBMIT_PATH
            and message.method == "POST"
            and self._takes_submits
            and payload.is_eof()
            and message.version == HttpVersion11
            and not message.should_close
            and not message.upgrade
            and "Expect" not in message.headers
        )

    def _begin_submit(self, message: Any, payload: StreamReader) -> None:
        body = payload.read_nowait()
        if (overload := self._hub.overload(self.source, body)) is not None:
            self._hub.metrics.submit_unavailable.inc()
            self._write(refusal_bytes(message.headers, overload))
            self._rest()
            return
        peer = self.peername
        remote = peer[0] if isinstance(peer, tuple) else peer
        call = SubmitCall(self._hub, message.headers, remote, new_request_id(), source=self.source)
        try:
            check_head_size(message.raw_headers)
            max_bytes = call.check_head()
            check_body(body, max_bytes, over_the_cap)
            call.lease.grow_to(len(body))
            self._submit = call
            if not call.enter(body, self._answer):
                self._answer()
        except (AdmissionError, ApiError) as exc:
            self._submit = None
            call.lease.release()
            self._write(to_bytes(call.refuse(exc)))

    def _rest(self) -> None:
        """Read nothing for a moment, after a refusal with ``Retry-After``."""
        self._pause_transport_reading()
        self._resting.add(self._end_rest)

    def _end_rest(self) -> None:
        """Read again, unless something else holds reading back."""
        if not (self._reading_paused or self._buffer_paused or self._held):
            self._resume_transport_reading()

    def _answer(self) -> None:
        """Answer the direct submit, and continue with what arrived behind it."""
        call, self._submit = self._submit, None
        assert call is not None
        call.lease.release()
        try:
            answer = call.reply()
            self.source = call.source
            self._loop.call_soon(call.note)
        except Exception:  # noqa: BLE001 - logged; a bug is answered too
            LOGGER.exception("answer_failed")
            answer = call.refuse(internal_error())
        self._write(to_bytes(answer))
        if self._held:
            data, self._held = self._held, b""
            self._resume_transport_reading()
            self.data_received(data)
        elif answer.status == HTTPStatus.SERVICE_UNAVAILABLE:  # such as by the shard that owns the label
            self._rest()

    def _write(self, answer: bytes) -> None:
        super()._write(answer)
        self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout

    def _process_keepalive(self) -> None:
        """Keep a connection with a direct submit in progress open: it is not idle."""
        if self._submit is not None:
            self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout
        super()._process_keepalive()
