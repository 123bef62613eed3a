"""What an admin key may ask of a hub: checkpoint, anchor and retention now (H19)."""

from __future__ import annotations

from typing import Final

from veen_core.checkpoint import Checkpoint
from veen_core.ids import Label, UnixTime
from veen_core.keys import SigningKey
from veen_core.status import CheckpointsResponse, LabelRequest, RetentionResponse, admin_digest
from veen_hub.client.endpoints import answer
from veen_hub.client.link import Link
from veen_hub.client.trust import check_signatures

MAX_CHECKPOINTS: Final = 64 * 1_048_576
"""Bytes: one of each label, of some hundred thousand."""


class Admin:
    """Signed requests; each is signed afresh, since the hub carries out a signature once."""

    def __init__(self, link: Link, key: SigningKey) -> None:
        self._link = link
        self._key = key
        self._last = 0

    async def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Now, of one label or of all that grew; their signatures are verified."""
        return self._verified(await self._call("/tooling/checkpoint", LabelRequest(label=label).encode()))

    async def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Publish the newest checkpoints now; those that were."""
        return self._verified(await self._call("/tooling/anchor", LabelRequest(label=label).encode()))

    async def retention(self) -> tuple[int, int]:
        """Apply the retention rules now; chunks and entries whose payloads went."""
        done = answer(RetentionResponse, await self._call("/tooling/retention", b""))
        return done.chunks, done.entries

    def _verified(self, body: bytes) -> tuple[Checkpoint, ...]:
        """The entries are not at hand: a checkpoint's epoch is all that is known of its time."""
        found = answer(CheckpointsResponse, body).checkpoints
        epoch_sec, now = self._link.profile.epoch_sec, self._link.time.now()
        for checkpoint in found:
            since = UnixTime(checkpoint.epoch * epoch_sec)
            check_signatures(self._link.status.identity, checkpoint, epoch_sec, since=since, now=now)
        return found

    async def _call(self, path: str, body: bytes) -> bytes:
        return await self._link.ask(
            lambda: self._link.api.transport.call(
                "POST", path, body, headers=self._signed(path, body), most=MAX_CHECKPOINTS
            )
        )

    def _signed(self, path: str, body: bytes) -> dict[str, str]:
        self._last = max(self._last + 1, self._link.time.now())
        digest = admin_digest("POST", path, body, UnixTime(self._last))
        return {"VEEN-Admin-Ts": str(self._last), "VEEN-Admin-Sig": self._key.sign(digest).hex()}
