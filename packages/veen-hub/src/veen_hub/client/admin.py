"""What an admin key may ask of a hub: checkpoint, anchor and retention now (H19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veen_core.checkpoint import Checkpoint
from veen_core.ids import Label, UnixTime
from veen_core.keys import SigningKey
from veen_core.status import CheckpointsResponse, LabelRequest, RetentionResponse, admin_digest
from veen_hub.client.errors import Misbehaved
from veen_hub.client.trust import check_signatures
from veen_hub.client.wire.endpoints import decode_response

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub

MAX_CHECKPOINTS: Final = 64 * 1_048_576
"""Bytes: one of each label, of some hundred thousand."""


class Admin:
    """Signed requests; each is signed afresh, since the hub carries out a signature once."""

    def __init__(self, hub: Hub, key: SigningKey) -> None:
        self._hub = hub
        self._connection = hub.connection
        self._key = key
        self._last = 0

    async def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Now, of one label or of all that grew; verified as far as ``_verify`` can."""
        return await self._made("/tooling/checkpoint", label)

    async def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Publish the newest checkpoints now; those that were, verified likewise."""
        return await self._made("/tooling/anchor", label)

    async def retention(self) -> tuple[int, int]:
        """Apply the retention rules now; chunks and entries whose payloads went."""
        done = decode_response(RetentionResponse, await self._call("/tooling/retention", b""))
        return done.chunks, done.entries

    async def _made(self, path: str, label: Label | None) -> tuple[Checkpoint, ...]:
        body = await self._call(path, LabelRequest(label=label).encode())
        found = decode_response(CheckpointsResponse, body).checkpoints
        for checkpoint in found:
            if label not in (None, checkpoint.label_curr):
                raise Misbehaved("a checkpoint of another label than the one asked for")
            await self._verify(checkpoint, named=label is not None)
        return found

    async def _verify(self, checkpoint: Checkpoint, *, named: bool) -> None:
        """Against the log of a label that was asked for, or of which this client has seen something.

        Of any other its signatures: there may be a hundred thousand, and nothing to contradict. Its epoch is
        all that is known of its time.
        """
        label = checkpoint.label_curr
        if named or await self._hub.knows(label):
            await (await self._hub.log(label)).verify_checkpoint(checkpoint)
            return
        epoch_sec, now = self._connection.profile.epoch_sec, self._connection.time.now()
        since = UnixTime(checkpoint.epoch * epoch_sec)
        check_signatures(self._connection.status.identity, checkpoint, epoch_sec, since=since, now=now)

    async def _call(self, path: str, body: bytes) -> bytes:
        return await self._connection.ask(
            lambda: self._connection.api.transport.call(
                "POST", path, body, headers=self._signed(path, body), most=MAX_CHECKPOINTS
            )
        )

    def _signed(self, path: str, body: bytes) -> dict[str, str]:
        self._last = max(self._last + 1, self._connection.time.now())
        digest = admin_digest("POST", path, body, UnixTime(self._last))
        return {"VEEN-Admin-Ts": str(self._last), "VEEN-Admin-Sig": self._key.sign(digest).hex()}
