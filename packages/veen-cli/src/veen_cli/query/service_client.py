"""A client of the Query API over HTTP (query-api-spec §7)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from veen_cli.arguments.private_files import refuse_if_shared
from veen_cli.frame.exits import CommandFailed, Exit
from veen_overlays.live.query_service.result_files import is_result_id
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError
from veen_overlays.query.result.result_file import MAX_RESULT_BYTES

STATUS_WAIT_SEC: Final = 20
FIRST_PAUSE_SEC: Final = 0.1
MAX_PAUSE_SEC: Final = 5.0
MAX_ANSWER_BYTES: Final = 1_048_576
"""Most bytes of an answer in JSON: a status or an error."""
CHUNK_BYTES: Final = 262_144
EXITS: Final = {
    400: Exit.USAGE,
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.USAGE,
    409: Exit.REFUSED,
    425: Exit.REFUSED,
    429: Exit.REFUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedQuery:
    """The ids of an accepted query."""

    query_id: str
    result_id: str


class ServiceClient:
    """One session with a service."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url.rstrip("/"), session

    async def submit(self, item: dict[str, Any]) -> AcceptedQuery:
        """Submit a descriptor."""
        path = "/api/v1/query/submit"
        found = await self._ask("POST", path, canonical_json.encode(item))
        query_id, result_id = found.get("query_id"), found.get("result_id")
        if not isinstance(query_id, str) or not isinstance(result_id, str) or not is_result_id(result_id):
            raise self._wrong(path, "has no query_id and result_id")
        return AcceptedQuery(query_id=query_id, result_id=result_id)

    async def wait(self, result_id: str) -> None:
        """Wait until a query has finished; raise if it failed. The caller bounds the time."""
        path, pause = f"/api/v1/query/status/{result_id}?wait={STATUS_WAIT_SEC}", FIRST_PAUSE_SEC
        while True:
            found = await self._ask("GET", path)
            match found.get("status"):
                case "completed":
                    return
                case "failed":
                    code = str(found.get("error_code"))
                    message = f"the query failed, {code}: {found.get('message')}"
                    raise CommandFailed(message, Exit.REFUSED, reason=code)
                case "pending" | "running":
                    # The service delays its answer while the query runs. Pause too, in case it answers at
                    # once.
                    await asyncio.sleep(pause)
                    pause = min(MAX_PAUSE_SEC, 2 * pause)
                case _:
                    raise self._wrong(path, "has no status that the Query API knows (query-api §8.1)")

    async def file(self, result_id: str) -> bytes:
        """Fetch the result file."""
        return await self._bytes("GET", f"/api/v1/query/evidence/{result_id}", max_bytes=MAX_RESULT_BYTES)

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        content = await self._bytes(method, path, body)
        try:
            found = canonical_json.decode(content, max_bytes=MAX_ANSWER_BYTES)
        except QueryError as exc:
            raise self._wrong(path, f"is not JSON: {exc}") from None
        if not isinstance(found, dict):
            raise self._wrong(path, "is not a JSON object")
        return found

    def _wrong(self, path: str, why: str) -> CommandFailed:
        """Return the error of an answer that is none of the Query API's."""
        return CommandFailed(
            f"{self._url}{path}: the answer {why}",
            Exit.PROTOCOL,
            "check that --service is the address of a query service",
        )

    async def _bytes(
        self, method: str, path: str, body: bytes | None = None, *, max_bytes: int = MAX_ANSWER_BYTES
    ) -> bytes:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            async with self._session.request(
                method, f"{self._url}{path}", data=body, headers=headers, allow_redirects=False
            ) as answer:
                content = await _read_to_end(answer, max_bytes)
                if answer.status >= 300:
                    raise _refused(answer.status, content)
                return content
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as exc:
            raise CommandFailed(
                f"the service at {self._url} cannot be reached: {exc}",
                Exit.NETWORK,
                "check --service, and that `veen query serve` runs",
            ) from None


async def _read_to_end(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read an answer to its end; refuse a longer one without holding it in memory."""
    content = bytearray()
    while chunk := await answer.content.read(CHUNK_BYTES):
        content += chunk
        if len(content) > max_bytes:
            raise CommandFailed(
                f"{answer.url}: the answer has more than {max_bytes} bytes",
                Exit.PROTOCOL,
                "narrow the filter, or ask for less evidence",
            )
    return bytes(content)


def _refused(status: int, content: bytes) -> CommandFailed:
    code, message = "internal_error", f"HTTP status {status}"
    try:
        found = canonical_json.decode(content)
        if isinstance(found, dict):
            code, message = str(found.get("error_code")), str(found.get("message"))
    except QueryError:
        pass
    return CommandFailed(
        f"the service refused, {code}: {message}", EXITS.get(status, Exit.NETWORK), reason=code
    )


def read_token(path: Path) -> str:
    """Read a bearer token from a file that only its owner can read."""
    refuse_if_shared(path)
    return path.read_text(encoding="ascii").strip()


@asynccontextmanager
async def connected(
    url: str, *, token: str | None, context: ssl.SSLContext | None
) -> AsyncIterator[ServiceClient]:
    """Open a session; the token goes to the service over TLS, or to this machine."""
    if token is not None and url.startswith("http:") and not _is_local(url):
        raise CommandFailed(
            f"{url} is plain HTTP: the token would be readable on its way", Exit.POLICY, "use https"
        )
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=STATUS_WAIT_SEC + 40)
    async with aiohttp.ClientSession(
        headers=headers,
        timeout=timeout,
        connector=aiohttp.TCPConnector(ssl=context if context is not None else True),
    ) as session:
        yield ServiceClient(url, session)


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit  # noqa: PLC0415 - rarely needed

    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
