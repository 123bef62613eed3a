"""Requests that need the hub's admin key: checkpoint, anchor, retention and handover now (H19, P9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veen_core.checkpoint import Checkpoint
from veen_core.handover import Handover, verify_handover
from veen_core.hub_identity import verify_checkpoint_signers
from veen_core.ids import HubId, Label, UnixTime
from veen_core.keys import SigningKey
from veen_core.status import (
    CheckpointsResponse,
    HandoverRequest,
    LabelRequest,
    RetentionResponse,
    admin_digest,
)
from veen_hub.client.errors import Misbehaved
from veen_hub.client.wire.endpoints import decode_response

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub

MAX_RESPONSE_BYTES: Final = 64 * 1_048_576
"""Largest response: enough for one checkpoint of each of some hundred thousand labels."""


class Admin:
    """Requests that need the hub's admin key. Each is signed anew: the hub accepts a signature once."""

    def __init__(self, hub: Hub, key: SigningKey) -> None:
        self._hub = hub
        self._connection = hub.connection
        self._key = key
        self._last_ts = 0

    async def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Make a checkpoint of one label, or of all labels that grew; returns the verified checkpoints."""
        return await self._checkpoints("/tooling/checkpoint", label)

    async def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Publish the newest checkpoints now; returns the published checkpoints, verified."""
        return await self._checkpoints("/tooling/anchor", label)

    async def retention(self) -> tuple[int, int]:
        """Apply the retention rules now; returns how many chunks and entries lost their payloads."""
        done = decode_response(RetentionResponse, await self._call("/tooling/retention", b""))
        return done.chunks, done.entries

    async def hand_over(self, new_hub: HubId, url: str = "") -> Handover:
        """End the hub in favour of its successor; returns the verified record (P9)."""
        request = HandoverRequest(new_hub=new_hub, url=url)
        record = decode_response(Handover, await self._call("/tooling/handover", request.encode()))
        if record.new_hub != new_hub:
            raise Misbehaved("the hub answered with a handover to another hub")
        status = self._connection.status
        verify_handover(record, status.identity, origin=status.hub_log_origin)
        return record

    async def _checkpoints(self, path: str, label: Label | None) -> tuple[Checkpoint, ...]:
        body = await self._call(path, LabelRequest(label=label).encode())
        found = decode_response(CheckpointsResponse, body).checkpoints
        for checkpoint in found:
            if label not in (None, checkpoint.label_curr):
                raise Misbehaved("the hub answered with a checkpoint of another label")
            await self._verify(checkpoint, named=label is not None)
        return found

    async def _verify(self, checkpoint: Checkpoint, *, named: bool) -> None:
        """Verify a checkpoint against the label's log, if the label was named or its log is known.

        For any other label only the signatures are verified, because there may be a hundred thousand such
        labels. The time of such a checkpoint is known only by its epoch.
        """
        label = checkpoint.label_curr
        if named or await self._hub.knows(label):
            await (await self._hub.log(label)).verify_checkpoint(checkpoint)
            return
        identity, epoch_sec = self._connection.status.identity, self._connection.profile.epoch_sec
        since, now = UnixTime(checkpoint.epoch * epoch_sec), self._connection.time.now()
        verify_checkpoint_signers(identity, checkpoint, epoch_sec, since=since, now=now)

    async def _call(self, path: str, body: bytes) -> bytes:
        return await self._connection.ask(
            lambda: self._connection.api.transport.call(
                "POST", path, body, headers=self._signed(path, body), max_bytes=MAX_RESPONSE_BYTES
            )
        )

    def _signed(self, path: str, body: bytes) -> dict[str, str]:
        self._last_ts = max(self._last_ts + 1, self._connection.time.now())
        digest = admin_digest(self._connection.hub_id, "POST", path, body, UnixTime(self._last_ts))
        return {"VEEN-Admin-Ts": str(self._last_ts), "VEEN-Admin-Sig": self._key.sign(digest).hex()}
