"""Requests on their way to the part that answers them: HTTP over a unix socket.

The process that accepted the request has checked what only it can see: the client's certificate and address.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api.reply import AnyReply, Headers, InterruptedReply, Reply, StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import Route

CONNECT_SEC: Final = 2.0
ANSWER_SEC: Final = 120.0
"""Longest time for an answer that is not a live stream, and for the next part of one that is passed on."""
MAX_HELD_BYTES: Final = 64 * 1_024
"""Largest answer that is read whole before it is passed on; a page has up to 8 MiB."""
MAX_SOCKET_PATH: Final = 100
"""Longest path of a unix socket; Linux allows 107 bytes."""
_KEPT: Final = ("Content-Type", "Accept", "Content-Length", "Content-Encoding")
"""Headers that are passed on, besides those whose name begins with VEEN-."""
_DROPPED: Final = frozenset(
    {"content-length", "date", "server", "connection", "transfer-encoding", "content-type"}
)


def socket_path(folder: Path, name: str) -> str:
    """Return a path of a unix socket that is short enough, if need be through an open descriptor."""
    path = str(folder.absolute() / name)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    return f"/proc/self/fd/{_descriptor_of(folder)}/{name}"


_DESCRIPTORS: dict[Path, int] = {}


def _descriptor_of(folder: Path) -> int:
    if folder not in _DESCRIPTORS:
        _DESCRIPTORS[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return _DESCRIPTORS[folder]


def not_available(name: str, why: object) -> ApiError:
    """Make the error for a part whose process does not answer."""
    return ApiError(
        Code.UNAVAILABLE,
        f"{name} of this hub does not answer ({why}): the hub restarts it; try again",
        retry_after=1,
    )


class PartClient:
    """HTTP to one part of this hub."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self._path = path
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path=self._path, limit=0),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=ANSWER_SEC, sock_connect=CONNECT_SEC),
                max_line_size=65_536,
                max_field_size=65_536,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, body: bytes = b"", *, timeout_sec: float = ANSWER_SEC
    ) -> bytes:
        """Make a call between parts; raise E.UNAVAILABLE unless it is answered with 200."""
        _headers, data = await self._call(method, path, body, timeout_sec)
        return data

    async def get(self, path: str) -> tuple[Headers, bytes]:
        """Make a call that reads, and return the answer's headers too."""
        return await self._call("GET", path, b"", ANSWER_SEC)

    async def _call(self, method: str, path: str, body: bytes, timeout_sec: float) -> tuple[Headers, bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_sec, sock_connect=CONNECT_SEC)
        url = URL(f"http://part{path}", encoded=True)
        try:
            async with self.session.request(method, url, data=body, timeout=timeout) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise not_available(self.name, type(exc).__name__) from exc
        if answer.status != 200:
            raise ApiError(
                Code.UNAVAILABLE,
                f"{self.name}: {path.partition('?')[0]} was refused with {answer.status}: {data[:200]!r}",
                retry_after=1,
            )
        return answer.headers, data

    async def forward(self, route: Route, request: ApiRequest, body: bytes | None = None) -> AnyReply:
        """Pass a request on, and return the answer; ``body`` was read already, if given."""
        content: bytes | AsyncIterator[bytes] | None = body
        if body is None and not request.content.is_eof():
            content = request.content.iter_chunked(256 * 1_024)
        elif body is None:
            content = request.content.read_nowait() or None
        headers = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name in _KEPT or name.upper().startswith("VEEN-")
        )
        url = URL.build(scheme="http", host="part", path=request.path, query=dict(request.query))
        is_live = route.is_endless or route.is_bulk
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SEC, sock_read=None if is_live else ANSWER_SEC
        )
        try:
            answer = await self.session.request(
                route.method,
                url,
                data=content,
                headers=headers,
                timeout=timeout,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise not_available(self.name, type(exc).__name__) from exc
        return await self._reply(request, answer)

    async def _reply(self, request: ApiRequest, answer: aiohttp.ClientResponse) -> AnyReply:
        """Pass a long answer on as it arrives: it is neither decoded nor held here."""
        kind = answer.headers.get("Content-Type", "application/octet-stream")
        headers = {
            name: value
            for name, value in answer.headers.items()
            if name.lower() not in _DROPPED and name != "VEEN-Request-Id"
        }
        length = answer.content_length
        if answer.status == 200 and (length is None or length > MAX_HELD_BYTES):
            if request.method == "HEAD":
                answer.close()  # its parts will not be asked for
            return StreamedReply(kind, _parts(answer, request.peer.lost), headers, length=length)
        try:
            async with answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise not_available(self.name, type(exc).__name__) from exc
        return Reply(answer.status, data, kind, headers)


async def _parts(answer: aiohttp.ClientResponse, lost: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Yield an answer's body until it ends, or its client is gone."""
    gone = asyncio.create_task(lost.wait())
    gone.add_done_callback(lambda _gone: answer.close())  # ends the wait for the next part
    try:
        while data := await answer.content.readany():
            yield data
    except (aiohttp.ClientError, TimeoutError, OSError) as exc:
        if not lost.is_set():
            raise InterruptedReply("the part of this hub that owns the label ended") from exc
    finally:
        gone.cancel()
