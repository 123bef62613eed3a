"""A connected hub of the blocking client, and its admin requests, without ``await``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.equivocation import Equivocation
from veen_core.handover import Handover
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HubProofResponse
from veen_core.ids import (
    AuthRef,
    Coid,
    Epoch,
    HubId,
    Label,
    UnixTime,
)
from veen_core.keys import DhKey, SigningKey
from veen_core.receipt import Receipt
from veen_core.status import CapStatus, Status
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.admin import Admin
from veen_hub.client.blocking.stream import BlockingStream
from veen_hub.client.hub import Hub
from veen_hub.client.hub_log import CONFIRM_TIMEOUT_SEC, LabelHeads
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.stream import Recipient


class BlockingAdmin:
    """Requests that need the hub's admin key (H19). Made by ``BlockingHub.admin``."""

    def __init__(self, loop: LoopThread, admin: Admin) -> None:
        self._loop = loop
        self._admin = admin

    def checkpoint(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Make a checkpoint of one label, or of all labels that grew; returns the verified checkpoints."""
        return self._loop.run(self._admin.checkpoint(label))

    def anchor(self, label: Label | None = None) -> tuple[Checkpoint, ...]:
        """Publish the newest checkpoints now; returns the published checkpoints, verified."""
        return self._loop.run(self._admin.anchor(label))

    def retention(self) -> tuple[int, int]:
        """Apply the retention rules now; returns how many chunks and entries lost their payloads."""
        return self._loop.run(self._admin.retention())

    def hand_over(self, new_hub: HubId, url: str = "") -> Handover:
        """End the hub in favour of its successor; returns the verified record (P9)."""
        return self._loop.run(self._admin.hand_over(new_hub, url))


class BlockingHub:
    """A connected hub. Made by ``connect``."""

    def __init__(self, loop: LoopThread, hub: Hub) -> None:
        self._loop = loop
        self._hub = hub

    @property
    def hub_id(self) -> HubId:
        """The hub's identifier, which is the hash of its first key."""
        return self._hub.hub_id

    @property
    def identity(self) -> HubIdentity:
        """The hub's verified identity: its keys and their validity."""
        return self._hub.identity

    @property
    def url(self) -> str:
        """The hub's address."""
        return self._hub.url

    def epoch_at(self, hub_ts: UnixTime) -> Epoch:
        """Return the epoch of a receipt's time; 0 under a profile without epochs (§3.2)."""
        return self._hub.epoch_at(hub_ts)

    def stream(
        self, name: str, *, to: Recipient | None = None, readers: Sequence[DhKey] = ()
    ) -> BlockingStream:
        """Return a stream, by name or by its id in 64 hex digits (B12).

        ``readers`` are the keys that the stream's readers share: they are tried first when a message is
        opened, and messages are sealed to the first of them, or to ``to`` if it is given (H11).
        """
        return BlockingStream(self._loop, self._hub.stream(name, to=to, readers=readers))

    def status(self) -> Status:
        """Read the hub's status and check its identity against the known one."""
        return self._loop.run(self._hub.status())

    def authorize(self, token: CapToken) -> Receipt:
        """Authorize a token at the hub; messages to its streams use it from then on (H5)."""
        return self._loop.run(self._hub.authorize(token))

    def hold(self, token: CapToken) -> None:
        """Keep the token of an access grant (spec-3 3.3); messages to its streams use it from then on."""
        self._loop.run(self._hub.hold(token))

    def cap_status(self, auth_ref: AuthRef) -> CapStatus:
        """Read the status of a token. The hub does not sign it; it signs the receipt of ``authorize``."""
        return self._loop.run(self._hub.cap_status(auth_ref))

    @property
    def hub_checkpoint(self) -> SignedHead | None:
        """The newest hub checkpoint that fulfils the witness policy; None without a policy."""
        return self._hub.hub_checkpoint

    def confirm(self, *receipts: Receipt, timeout: float = CONFIRM_TIMEOUT_SEC) -> None:
        """Wait until a quorum of witnesses covers the receipts; raise ``Unconfirmed`` after ``timeout`` s."""
        self._loop.run(self._hub.confirm(*receipts, timeout=timeout))

    def evidence(self, label: Label, stream_seq: int, *, timeout: float = CONFIRM_TIMEOUT_SEC) -> HubEvidence:
        """Return verified evidence that proves one message without the log (``HubEvidence``, P1)."""
        return self._loop.run(self._hub.evidence(label, stream_seq, timeout=timeout))

    def label_head(
        self, label: Label, stream_seq: int | None = None, *, timeout: float = CONFIRM_TIMEOUT_SEC
    ) -> HubProofResponse:
        """Return a label's newest head in the hub log, or the first that covers ``stream_seq`` (P1)."""
        return self._loop.run(self._hub.label_head(label, stream_seq, timeout=timeout))

    def label_heads(self, *, progress: Callable[[int], None] | None = None) -> LabelHeads:
        """Return the newest head of every label, complete under one hub checkpoint (P1).

        The whole hub log is read; ``progress`` is called in another thread with the number of entries read.
        """
        return self._loop.run(self._hub.label_heads(progress=progress))

    def cut_over(self) -> bool:
        """Move to the successor that this hub's verified handover names; False without an address (P9)."""
        return self._loop.run(self._hub.cut_over())

    def admin(self, key: SigningKey) -> BlockingAdmin:
        """Return the requests that need the hub's admin key (H19)."""
        return BlockingAdmin(self._loop, self._hub.admin(key))

    def report_equivocation(self, evidence: Equivocation) -> None:
        """Verify evidence against any hub and report it to this hub."""
        self._loop.run(self._hub.report_equivocation(evidence))

    def fetch(self, coid: Coid) -> bytes:
        """Fetch an attachment's ciphertext and check it against ``coid``."""
        return self._loop.run(self._hub.fetch(coid))
