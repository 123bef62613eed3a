"""Memories that are asked in turn: a server with a copy of the hub log, and the anchor ledger (P3)."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

import aiohttp

from veen_core import hub_log as hub_logs
from veen_core.errors import DecodeError, SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.tlog.note import MAX_NOTE_BYTES
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_hub.ops.anchors import AnchoredRoot, AnchorError, RecallingAnchor
from veen_hub.ops.hub_log.memories import ContradictedError, SilentMemoryError, check_contained
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import StorageError, Store

CHECKPOINT_PATH: Final = "/log/checkpoint"
ROOTS_PER_READ: Final = 256
"""Anchored roots that are compared at once in a reader thread."""
REQUEST_SEC: Final = 5.0
"""Longest time that one request may take."""


class UrlMemory:
    """A server that serves hub checkpoints of this hub: a replica, a mirror or a monitor."""

    def __init__(
        self,
        name: str,
        url: str,
        context: ssl.SSLContext | None,
        *,
        store: Store,
        access: LogAccess,
        identity: HubIdentity,
        origin: str,
    ) -> None:
        self.name = name
        self._url = url.rstrip("/") + CHECKPOINT_PATH
        self._context = context
        self._store = store
        self._access = access
        self._identity = identity
        self._origin = origin

    async def compare(self) -> None:
        """Read the server's newest hub checkpoint and compare it; only this hub's own signature counts."""
        signed = await self._fetch()
        hub_log = self._store.hub_log
        if signed is None:
            if hub_log.size:  # a server that has lost its copy cannot answer
                raise SilentMemoryError(f"{self._url} has no hub checkpoint")
            return
        head = signed.head
        await self._access.read(lambda: check_contained(hub_log, head.size, head.root, self.name))

    async def _fetch(self) -> SignedHead | None:
        try:
            status, body = await self._get()
        except TimeoutError:
            raise SilentMemoryError(f"{self._url} does not answer within {REQUEST_SEC:g} s") from None
        except aiohttp.ClientResponseError:  # its message would repeat the answer
            raise SilentMemoryError(f"{self._url} does not answer in HTTP") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise SilentMemoryError(
                f"{self._url} cannot be reached: {str(exc) or type(exc).__name__}"
            ) from None
        if status == 404:
            return None
        if status != 200:
            raise SilentMemoryError(f"{self._url} answers {status}")
        try:
            signed = parse_signed_head(body)
            hub_logs.verify_hub_checkpoint(self._identity, signed, origin=self._origin)
        except (DecodeError, SignatureError) as exc:
            raise SilentMemoryError(f"{self._url} serves no hub checkpoint of this hub: {exc}") from None
        return signed

    async def _get(self) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SEC)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(self._url, allow_redirects=False, ssl=self._context or True) as answer,
        ):
            return answer.status, await read_bounded(answer, MAX_NOTE_BYTES)


async def read_bounded(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read a body of at most ``max_bytes``; raise ValueError if it is longer."""
    body = b""
    async for part in answer.content.iter_any():
        body += part
        if len(body) > max_bytes:
            raise ValueError(f"the answer has more than {max_bytes} bytes")
    return body


class LedgerMemory:
    """The anchor ledger: the newest anchored root of every label (ANCHOR0)."""

    def __init__(self, anchor: RecallingAnchor, store: Store, access: LogAccess, hub_id: HubId) -> None:
        self.name = "the anchor ledger"
        self._anchor = anchor
        self._store = store
        self._access = access
        self._hub_id = hub_id
        self._unchecked: list[AnchoredRoot] = []
        """Roots that were recalled, and not compared yet."""
        self._answered = False

    async def compare(self) -> None:
        """Compare every anchored root with the label's log."""
        try:
            roots = await self._anchor.recall(self._hub_id)
        except AnchorError as exc:
            raise SilentMemoryError(str(exc)) from None
        if not roots and not self._answered and await self._access.read(self._has_anchored):
            what = "does not exist" if roots is None else "holds nothing of this hub"
            raise SilentMemoryError(
                f"the ledger {what}, and this hub has anchored checkpoints in it",
                action="restore it; if it is a new ledger, set hub_log.memories.anchors to false",
            )
        self._unchecked += roots or ()
        while self._unchecked:
            await self._access.read(partial(self._check, self._unchecked[:ROOTS_PER_READ]))
            del self._unchecked[:ROOTS_PER_READ]
        self._answered = True

    def _has_anchored(self) -> bool:
        after = None
        while page := self._store.read.label_progress(after):
            if any(label.anchored for label in page):
                return True
            after = page[-1].label
        return False

    def _check(self, roots: list[AnchoredRoot]) -> None:
        for root in roots:
            try:
                self._compare(root)
            except StorageError as exc:  # damage is not a rollback, and no agreement either
                raise SilentMemoryError(
                    f"label {root.label.hex()} cannot be compared with the ledger: {exc}"
                ) from exc

    def _compare(self, root: AnchoredRoot) -> None:
        head = self._store.read.head(root.label)
        entries = head.stream_seq if head is not None else 0
        where = f"label {root.label.hex()}"
        if root.upto_seq > entries:
            raise ContradictedError(
                f"the hub is behind: {self.name} holds {where} up to entry {root.upto_seq} and this hub has "
                f"it up to {entries}, {root.upto_seq - entries} less"
            )
        if self._store.read.receipt(root.label, root.upto_seq).mmr_root != root.mmr_root:
            raise ContradictedError(
                f"{where} has two histories: {self.name} holds another root at {root.upto_seq} than this hub"
            )
