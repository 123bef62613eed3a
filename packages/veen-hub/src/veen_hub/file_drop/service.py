"""The hub's side of drop folders: requests of each sender in the order of their numbers (DR0).

One request, from file to file:

1. A request waits until all requests of its sender with smaller numbers are answered, and its file is whole.
2. If it has a kept reply, it gets that reply again.
3. Before a submit, the head of its label is noted, durably.
4. The endpoint is called. If the hub cannot answer now (E.UNAVAILABLE), it is called again later.
5. If the request had begun before a crash and is a duplicate now, its receipt is found after the noted head.
6. The reply is kept, durably; then it is written to the outbox, and the request is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from multidict import CIMultiDict

from veen_core.api import ErrorEnvelope, unwrap_submit
from veen_core.entry import Entry
from veen_core.errors import ApiError, DecodeError, VeenError
from veen_core.ids import StreamSeq
from veen_core.msg import Msg
from veen_core.rejection import DUPLICATE, HTTP_STATUS, Code
from veen_hub.api.content import CBOR, CBOR_SEQ, content_type_of
from veen_hub.api.errors import answer_error, refuse
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request_ids import new_request_id
from veen_hub.api.submit import encode
from veen_hub.api.whole_requests import answer_whole
from veen_hub.file_drop.answered import AnsweredRequests, Begun
from veen_hub.file_drop.envelopes import (
    MAX_REQUEST_BYTES,
    REPLY,
    REQUEST,
    STATUS_NAME,
    DropName,
    DroppedReply,
    DroppedRequest,
    digest_of,
)
from veen_hub.file_drop.files import names_in, read_file, write_file
from veen_hub.hub import Hub
from veen_hub.ops.config.file_drop import FileSettings
from veen_hub.ops.logs import LOGGER, log

SUBMIT: Final = ("POST", "/v1/submit")
NOT_NOW: Final = HTTP_STATUS[Code.UNAVAILABLE]
PAGE_ENTRIES: Final = 256
"""Entries that are read at once in the search for a receipt."""


class FileDropService:
    """Answers the requests in one inbox."""

    def __init__(self, hub: Hub, settings: FileSettings) -> None:
        assert settings.inbox is not None
        assert settings.outbox is not None
        self._hub = hub
        self._inbox, self._outbox = settings.inbox, settings.outbox
        self._settings = settings
        self._state = hub.store.layout.view("file")
        self._senders: dict[str, AnsweredRequests] = {}
        self._faults: set[str] = set()
        """Faults of this scan of the inbox."""
        self._logged: set[str] = set()
        """Faults of the previous scan, which were logged."""
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        tasks = (self._answer_all(), self._renew_status())
        self._running = [asyncio.create_task(task) for task in tasks]

    async def stop(self) -> None:
        """Stop between two requests; the hub has been drained, so a submit in progress has its outcome."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _renew_status(self) -> None:
        while True:
            try:
                status = DroppedReply(200, (("Content-Type", CBOR),), self._hub.status().encode()).encode()
                await self._hub.log.read(lambda status=status: write_file(self._outbox, STATUS_NAME, status))  # type: ignore[misc]
            except OSError as exc:
                log(logging.WARNING, "file_outbox_failed", folder=str(self._outbox), error=str(exc))
            except Exception:  # noqa: BLE001 - logged; such as a clock of another package
                LOGGER.exception("file_status_failed")
            await asyncio.sleep(self._settings.status_sec)

    async def _answer_all(self) -> None:
        while True:
            try:
                names = await self._hub.log.read(self._waiting)
                for _sender, requests in groupby(names, key=attrgetter("sender")):
                    await self._answer_sender(requests)
            except OSError as exc:
                self._say("folder", "file_inbox_failed", folder=str(self._inbox), error=str(exc))
            self._logged, self._faults = self._faults, set()
            await asyncio.sleep(self._settings.poll_ms / 1_000)

    def _waiting(self) -> list[DropName]:
        """Return the requests in the inbox, those of each sender in order."""
        names = (DropName.parse(name, REQUEST) for name in names_in(self._inbox))
        return sorted(name for name in names if name is not None)

    def _say(self, about: str, event: str, **fields: str) -> None:
        """Note a fault; log it unless the previous scan had it."""
        if len(self._faults) < self._settings.max_senders:
            self._faults.add(about)
            if about not in self._logged:
                log(logging.WARNING, event, **fields)

    # --- one request

    async def _answer_sender(self, requests: Iterator[DropName]) -> None:
        """Answer the requests of one sender up to the first that must wait; no other sender waits for it."""
        file = ""
        try:
            for name in requests:
                file = name.file_name(REQUEST)
                if not await self._answer(name):
                    return
        except OSError as exc:
            self._say(file, "file_request_waits", file=file, error=str(exc))
        except Exception:  # noqa: BLE001 - logged; the next look may find the cause removed
            LOGGER.exception("file_request_failed")

    async def _answer(self, name: DropName) -> bool:
        """Answer a request; return False if it must wait, and with it all later ones of its sender."""
        sender = self._sender(name.sender)
        file = name.file_name(REQUEST)
        if sender is None:
            self._say(name.sender, "file_sender_refused", sender=name.sender, why="file.max_senders reached")
            return False
        if name.number > sender.done + 1:
            self._say(f"{name.sender}+{sender.done}", "file_gap", file=file, missing=str(sender.done + 1))
            return False
        content = await self._hub.log.read(lambda: read_file(self._inbox / file, MAX_REQUEST_BYTES))
        if content is None or digest_of(content) != name.digest:
            self._say(file, "file_damaged", file=file, why="not a file with the content that its name says")
            return name.number <= sender.done
        if (kept := await self._hub.log.read(lambda: sender.reply_to(name))) is not None:
            await self._hub.log.read(lambda: self._finish(name, kept))
            return True
        if name.number <= sender.done:
            answered = refuse(CIMultiDict(), _used(name), new_request_id())
            await self._hub.log.read(lambda: self._finish(name, _to_file(answered)))
            return True
        reply = await self._call(name, sender, content)
        if reply.status == NOT_NOW:
            return False
        data = _to_file(reply)
        await self._hub.log.read(lambda: sender.end(name, data))
        await self._hub.log.read(lambda: self._finish(name, data))
        return True

    def _sender(self, sender: str) -> AnsweredRequests | None:
        found = self._senders.get(sender)
        if found is None and len(self._senders) < self._settings.max_senders:
            found = self._senders[sender] = AnsweredRequests(self._state / sender)
        return found

    def _finish(self, name: DropName, reply: bytes) -> None:
        write_file(self._outbox, name.file_name(REPLY), reply)
        (self._inbox / name.file_name(REQUEST)).unlink(missing_ok=True)

    async def _call(self, name: DropName, sender: AnsweredRequests, content: bytes) -> Reply:
        headers: Headers = CIMultiDict()
        try:
            asked = DroppedRequest.decode(content)
            headers = CIMultiDict(asked.headers)
            headers.setdefault("Content-Length", str(len(asked.body)))
            begun = await self._begin(name, sender, asked, headers)
            reply = await answer_whole(
                self._hub, "files", method=asked.method, target=asked.target, headers=headers, body=asked.body
            )
            if begun is not None and _is_duplicate(reply):
                return await self._hub.log.read(lambda: self._find(asked, begun, reply))
        except Exception as exc:  # noqa: BLE001 - a bug is answered too
            return answer_error(exc, headers, name.file_name(REQUEST), new_request_id())
        return reply

    async def _begin(
        self, name: DropName, sender: AnsweredRequests, asked: DroppedRequest, headers: Headers
    ) -> Begun | None:
        """Note the label's head before a submit; return the earlier note if the submit had begun before."""
        if (asked.method, asked.target) != SUBMIT:
            return None
        if content_type_of(headers) == CBOR_SEQ:
            raise ApiError(Code.BAD_REQUEST, "a file has one message: send each in a file of its own")
        if (before := await self._hub.log.read(lambda: sender.begun(name))) is not None:
            return before
        try:
            label = Msg.decode(unwrap_submit(asked.body)).label
        except DecodeError:
            return None  # admission says what is wrong with it
        head = await self._hub.log.read(lambda: self._hub.store.read.head(label))
        begun = Begun(label, head.stream_seq if head is not None else StreamSeq(0))
        await self._hub.log.read(lambda: sender.begin(name, begun))
        return None

    def _find(self, asked: DroppedRequest, begun: Begun, refused: Reply) -> Reply:
        """Return the receipt of a message that was accepted before a crash; else the refusal."""
        wire = unwrap_submit(asked.body)
        for entry in self._entries_after(begun):
            if entry.msg_bytes == wire:
                name = refused.headers.get("VEEN-Request-Id", "")
                return Reply(200, encode(entry, name), CBOR, {"VEEN-Request-Id": name})
        return refused

    def _entries_after(self, begun: Begun) -> Iterator[Entry]:
        at = StreamSeq(begun.head + 1)
        while found := self._hub.store.read.entries(begun.label, at, PAGE_ENTRIES):
            yield from (one for one in found if isinstance(one, Entry))
            at = StreamSeq(at + len(found))


def _to_file(reply: Reply) -> bytes:
    headers = {"Content-Type": reply.content_type, **reply.headers}
    return DroppedReply(reply.status, tuple(headers.items()), reply.body).encode()


def _is_duplicate(reply: Reply) -> bool:
    try:
        detail = ErrorEnvelope.decode(reply.body).detail if reply.status != 200 else None
    except VeenError:
        return False
    return detail is not None and detail.detail_enum == DUPLICATE.detail


def _used(name: DropName) -> ApiError:
    about = f"number {name.number} of sender {name.sender} was used by another request"
    return ApiError(Code.CONFLICT, f"{about}, or by this one, whose reply is no longer kept")
