"""One witness, seen from the hub: the client side of C2SP tlog-witness.

| answer | what the hub does |
|---|---|
| 200 | verify the cosignature under the configured key; other signatures are ignored |
| 409 with a size up to the hub log's | take that size as the old size and ask once more |
| 409 with a larger size | the hub is behind: stop signing |
| 409 without a size, or again, for equal sizes | the witness knows another root: stop signing |
| 422 to a proof that verifies here | the witness knows another tree: stop signing |
| anything else, or nothing | a failure: ask again later |
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

import aiohttp

from veen_core.errors import ConfigError, DecodeError
from veen_core.tlog import add_checkpoint
from veen_core.tlog.add_checkpoint import SIZE_CONTENT_TYPE, AddCheckpoint
from veen_core.tlog.note import MAX_NOTE_BYTES, NoteSignature, parse_signatures
from veen_core.tlog.tree import verify_consistency
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_size
from veen_hub.ops.config.hub_log import WitnessSettings
from veen_hub.ops.hub_log.memories import SilentMemoryError, behind_error, forked_error
from veen_hub.ops.hub_log.memory_sources import read_bounded
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import StoredHubLog

ANSWER_SEC: Final = 3.0
"""Longest time that a witness may take to cosign, a second request after a 409 included."""
MAX_ANSWER_BYTES: Final = MAX_NOTE_BYTES
"""Largest answer that is read: a witness may sign with several keys and algorithms."""
KEEPALIVE_SEC: Final = 300
"""How long an idle connection is kept; cosignatures are renewed more often."""
ADD_THE_LOG: Final = "add this hub's key to the witness; `veen hub keys --note` prints it"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content_type: str
    body: bytes


class WitnessLink:
    """Asks one witness for cosignatures, one request at a time over one connection."""

    def __init__(self, settings: WitnessSettings, hub_log: StoredHubLog, access: LogAccess) -> None:
        self.key = settings.key
        self.name = f"witness {settings.key.name}"
        self.old_size = 0
        """Size that the witness cosigned last, as far as the hub knows."""
        self._url = settings.url.rstrip("/") + add_checkpoint.PATH
        self._hub_log = hub_log
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        try:
            self._context = ssl.create_default_context(cafile=settings.ca) if settings.ca else None
        except OSError as exc:  # an SSLError too: not a certificate
            raise ConfigError(f"hub_log.witnesses.ca: {settings.ca}: {exc.strerror or exc}") from None

    async def cosign(self, signed: SignedHead) -> NoteSignature:
        """Return the witness's cosignature; raise ``SilentMemoryError`` or ``ContradictedError``."""
        try:
            async with asyncio.timeout(ANSWER_SEC):
                return await self._cosign(signed)
        except TimeoutError:
            raise SilentMemoryError(f"{self._url} does not answer within {ANSWER_SEC:g} s") from None

    async def _cosign(self, signed: SignedHead) -> NoteSignature:
        outcome = await self._attempt(signed, min(self.old_size, signed.head.size))
        if isinstance(outcome, int):
            old = self._checked(outcome, signed.head)
            outcome = await self._attempt(signed, old)
            if isinstance(outcome, int):
                if self._checked(outcome, signed.head) == old == signed.head.size:
                    raise forked_error(self.name, old)
                raise SilentMemoryError(f"{self._url} wants old size {outcome}, after it wanted {old}")
        self.old_size = signed.head.size
        return outcome

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _checked(self, told: int, head: TreeHead) -> int:
        """Return the size that a witness named; raise if the hub is behind it."""
        if told > self._hub_log.size:
            raise behind_error(self.name, told, self._hub_log.size)
        self.old_size = told
        if told > head.size:  # this hub has the tree, and waits for its heads file before it shows it
            raise SilentMemoryError(
                f"{self._url} knows {told} entries, of which the hub shows {head.size} now"
            )
        return told

    async def _attempt(self, signed: SignedHead, old: int) -> NoteSignature | int:
        """Send one request; return the cosignature, or the old size that the witness wants."""
        size = signed.head.size
        proof: list[bytes] = []
        if 0 < old < size:
            proof = await self._access.read(lambda: self._hub_log.prove_consistency(old, size))
        answer = await self._post(AddCheckpoint(old, tuple(proof), signed).encode())
        match answer.status:
            case 200:
                return self._cosignature(signed, answer.body)
            case 409 if answer.content_type == SIZE_CONTENT_TYPE:
                return self._size(answer.body)
            case 409 if old == size:
                raise forked_error(self.name, size)
            case 422 if old > 0:
                await self._access.read(lambda: self._check_own_proof(old, signed.head, proof))
                raise forked_error(self.name, old)
            case 403 | 404:
                raise SilentMemoryError(f"{self._url} answers {answer.status}", action=ADD_THE_LOG)
            case status:
                raise SilentMemoryError(f"{self._url} answers {status}")

    def _check_own_proof(self, old: int, head: TreeHead, proof: list[bytes]) -> None:
        """Raise ``ProofError`` if a proof that was sent does not verify here: the fault is the hub's own."""
        verify_consistency(old, head.size, proof, self._hub_log.root_at(old), head.root)

    def _cosignature(self, signed: SignedHead, body: bytes) -> NoteSignature:
        try:
            lines = parse_signatures(body.decode())
        except (DecodeError, UnicodeDecodeError) as exc:
            raise SilentMemoryError(f"{self._url} answers 200 without signature lines: {exc}") from None
        for line in filter(self.key.is_named_by, lines):
            if self.key.is_valid(signed.note.text, line.signature):
                return line
            raise SilentMemoryError(f"{self._url} answers with a cosignature that does not verify")
        raise SilentMemoryError(
            f"{self._url} answers without a cosignature of {self.key.text}",
            action="set hub_log.witnesses.key to the witness's key",
        )

    def _size(self, body: bytes) -> int:
        try:
            return parse_size(body.decode("ascii").removesuffix("\n"), self._url)
        except (DecodeError, UnicodeDecodeError):
            raise SilentMemoryError(f"{self._url} answers 409 without a tree size") from None

    async def _post(self, body: bytes) -> _Answer:
        try:
            try:
                return await self._send(body)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                return await self._send(body)  # the witness has closed an idle connection
        except aiohttp.ClientResponseError:  # its message would repeat the answer
            raise SilentMemoryError(f"{self._url} does not answer in HTTP") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise SilentMemoryError(
                f"{self._url} cannot be reached: {str(exc) or type(exc).__name__}"
            ) from None

    async def _send(self, body: bytes) -> _Answer:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=1, keepalive_timeout=KEEPALIVE_SEC, ssl=self._context or True
            )
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout())
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            content = await read_bounded(answer, MAX_ANSWER_BYTES)
            return _Answer(answer.status, answer.content_type, content)
