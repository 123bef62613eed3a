"""Files to one hub (DR0): requests are dropped in a folder, and replies are awaited in another.

The address is ``file:///spool``. The link, or the hub itself, takes requests from ``/spool/out`` and puts
replies into ``/spool/in``, in any order and at any time. ``/spool/kept`` has a copy of every request
without a reply, and of the newest submits: a message that is sent again gets the receipt of the first time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from veen_core import cbor
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.rejection import Code
from veen_hub.client.errors import IF_SILENT, BadRequest, Misbehaved, TooLarge, Unreachable
from veen_hub.client.wire.transport import (
    CBOR,
    CBOR_SEQ,
    MAX_RESPONSE_BYTES,
    HubResponse,
    HubTransport,
    Timeouts,
    Tls,
)
from veen_hub.file_drop.envelopes import (
    MAX_REQUEST_BYTES,
    REPLY,
    REQUEST,
    STATUS_NAME,
    DropName,
    DroppedReply,
    DroppedRequest,
    Fields,
    digest_of,
)
from veen_hub.file_drop.files import names_in, read_file, write_file

SUBMIT: Final = ("POST", "/v1/submit")
MAX_KEPT_SUBMITS: Final = 256
POLL_SEC: Final = 0.02
SENDER: Final = "sender"


class Spool:
    """The folders of one sender, which several processes may share."""

    def __init__(self, folder: Path) -> None:
        self.out, self.arrived, self._kept = folder / "out", folder / "in", folder / "kept"
        self._folder = folder
        for each in (self.out, self.arrived, self._kept):
            each.mkdir(parents=True, exist_ok=True)
        with self._locked():
            for name in self._unanswered():
                self._drop(name)

    def drop(self, request: DroppedRequest) -> DropName:
        """Drop a request and return its name; durable when this returns.

        An equal request that was dropped before, and whose reply was not used up, is the same request.
        """
        content = request.encode()
        if len(content) > MAX_REQUEST_BYTES:
            raise TooLarge(
                Code.LIMIT, f"{len(content)} bytes are more than the {MAX_REQUEST_BYTES} of a file"
            )
        digest = digest_of(content)
        with self._locked():
            for name in self._names(self._kept, REQUEST):
                if name.digest == digest:
                    if not self._reply_path(name).exists():
                        self._drop(name)
                    return name
            sender, last = self._counter()
            name = DropName(sender, last + 1, digest)
            write_file(self._kept, name.file_name(REQUEST), content)  # from here on the number is taken
            write_file(self._folder, SENDER, f"{sender} {name.number}".encode())
            self._drop(name)
        return name

    def reply(self, name: DropName, max_bytes: int) -> DroppedReply | None:
        """Return the reply to a request, if it has arrived."""
        try:
            content = read_file(self._reply_path(name), max_bytes)
        except FileNotFoundError:
            return None
        except PermissionError as exc:
            raise StateError(
                f"{exc.filename} cannot be read: {exc.strerror}",
                action="give this user the right to read it, such as by the group of the hub's outbox",
            ) from None
        if content is None:
            raise Misbehaved("the reply in a file is larger than it may be, or not a regular file")
        return _decoded(content)

    def status(self) -> DroppedReply | None:
        """Return the newest status that the hub has sent."""
        try:
            content = read_file(self.arrived / STATUS_NAME, MAX_RESPONSE_BYTES)
        except FileNotFoundError:
            return None
        return _decoded(content or b"")

    def forget(self, name: DropName) -> None:
        """Remove a request that is settled, and its reply."""
        (self._kept / name.file_name(REQUEST)).unlink(missing_ok=True)
        self._reply_path(name).unlink(missing_ok=True)

    def prune(self) -> None:
        """Forget the oldest answered submits beyond ``MAX_KEPT_SUBMITS``."""
        answered = [name for name in self._names(self._kept, REQUEST) if self._reply_path(name).exists()]
        for name in answered[:-MAX_KEPT_SUBMITS]:
            self.forget(name)

    # --- inside

    def _drop(self, name: DropName) -> None:
        content = read_file(self._kept / name.file_name(REQUEST), MAX_REQUEST_BYTES)
        if content is None or digest_of(content) != name.digest:
            raise StateError(
                f"{self._kept / name.file_name(REQUEST)} is damaged",
                action="restore it from a backup, or begin with a new folder",
            )
        write_file(self.out, name.file_name(REQUEST), content)

    def _unanswered(self) -> list[DropName]:
        return [name for name in self._names(self._kept, REQUEST) if not self._reply_path(name).exists()]

    def _reply_path(self, name: DropName) -> Path:
        return self.arrived / name.file_name(REPLY)

    @staticmethod
    def _names(folder: Path, kind: str) -> list[DropName]:
        names = (DropName.parse(each, kind) for each in names_in(folder))
        return sorted(name for name in names if name is not None)

    def _counter(self) -> tuple[str, int]:
        """Return the sender's id and its last number; a kept request counts even if the counter does not."""
        try:
            sender, last = (self._folder / SENDER).read_text(encoding="ascii").split()
        except FileNotFoundError:
            sender, last = secrets.token_hex(8), "0"
        kept = [name.number for name in self._names(self._kept, REQUEST)]
        return sender, max([int(last), *kept])

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class FileTransport(HubTransport):
    """Requests to the hub at the other end of a drop folder."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url} is not file:///folder", action="give the absolute path of the folder")
        if tls is not None:
            raise ConfigError(
                f"{url}: TLS settings are given, but the address is a folder",
                action="leave the TLS settings out (--ca, --cert, --cert-key)",
            )
        self.url = url
        self.timeouts = timeouts
        try:
            self._spool = Spool(Path(unquote(parts.path)))
        except OSError as exc:
            raise ConfigError(f"{url}: the folder cannot be used: {exc}") from None

    async def close(self) -> None:
        """Do nothing: requests without a reply stay in the folder."""

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = CBOR,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        timeout: float | None = None,
    ) -> bytes:
        """Do as every transport; a sequence of messages is dropped message by message (H14)."""
        if (method, path) == SUBMIT and content_type == CBOR_SEQ:
            return await self._submit_each(body or b"", headers or {}, timeout)
        return await super().call(
            method,
            path,
            body,
            content_type=content_type,
            headers=headers,
            max_bytes=max_bytes,
            timeout=timeout,
        )

    async def _submit_each(self, body: bytes, headers: Mapping[str, str], timeout: float | None) -> bytes:
        """Drop each message of a sequence in a file of its own; return their outcomes as a sequence (H14)."""
        named = {"Content-Type": CBOR, **headers}
        requests = [DroppedRequest(*SUBMIT, _fields(named), item) for item in cbor.split_sequence(body)]
        names = [await asyncio.to_thread(self._spool.drop, request) for request in requests]
        replies = [await self._wait(name, MAX_RESPONSE_BYTES, timeout, submits=True) for name in names]
        return b"".join(reply.body for reply in replies)

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
        if (method, path) == ("GET", "/v1/status") and (known := self._spool.status()) is not None:
            return _response(known)
        submits = (method, path) == SUBMIT
        fields = _fields(headers or {})
        name = await asyncio.to_thread(self._spool.drop, DroppedRequest(method, path, fields, body or b""))
        return _response(await self._wait(name, max_bytes, timeout, submits=submits))

    async def _wait(
        self, name: DropName, max_bytes: int, timeout: float | None, *, submits: bool
    ) -> DroppedReply:
        limit = self.timeouts.request if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                while (reply := self._spool.reply(name, max_bytes + 65_536)) is None:
                    await asyncio.sleep(POLL_SEC)
        except TimeoutError:
            raise Unreachable(
                f"{self.url}: no reply yet to {name.file_name(REQUEST)}", action=IF_SILENT["file"]
            ) from None
        if submits and reply.status == 200:
            self._spool.prune()
        else:
            self._spool.forget(name)
        return reply

    @asynccontextmanager
    async def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Refuse: neither live streams nor attachments travel over files."""
        del timeout, idle
        raise BadRequest(
            Code.BAD_REQUEST,
            f"{method} {path} does not travel over files: use the hub's http:// or https:// address",
        )
        yield  # type: ignore[unreachable]  # makes this a generator


def _fields(headers: Mapping[str, str | Sequence[str]]) -> Fields:
    pairs = ((k, (v,) if isinstance(v, str) else v) for k, v in headers.items())
    return tuple((name, value) for name, values in pairs for value in values)


def _decoded(content: bytes) -> DroppedReply:
    try:
        return DroppedReply.decode(content)
    except DecodeError as exc:
        raise Misbehaved(f"the reply in a file: {exc}") from None


def _response(reply: DroppedReply) -> HubResponse:
    return HubResponse(reply.status, {name.lower(): value for name, value in reply.headers}, reply.body)
