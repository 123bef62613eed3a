"""The hub without HTTP: an open data directory, the pipeline over it, and the scheduled work.

HTTP handlers decode a request, call one method here or of one part, and reply. Every change of the log passes
through the sequencer; every read comes from ``store.read``. The parts (upkeep, authorization, realm follower)
are given what they need and never the hub itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from veen_core.errors import ApiError, IdentityError
from veen_core.handover import Handover
from veen_core.ids import AuthRef, ClientId, Label, UnixTime
from veen_core.protocols import Clock
from veen_core.rejection import Code
from veen_core.status import HandoverRequest, Status
from veen_hub.admission.admitter import Admitter
from veen_hub.admission.attachment_quota import AttachmentQuota
from veen_hub.admission.authorization import Authorization
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.admission.replay_guard import AdminReplayGuard, SeenEvidence
from veen_hub.admission.stateless import ProfileAndLimits, Submission
from veen_hub.admission.table import AttachmentWriter
from veen_hub.ops.advertising import HubAdvertiser
from veen_hub.ops.anchors import AnchorPublisher
from veen_hub.ops.authority_probe import AuthorityProbe
from veen_hub.ops.chores import Chore
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import HubConfig
from veen_hub.ops.hub_log import HubLogService
from veen_hub.ops.logs import log
from veen_hub.ops.metrics import Metrics
from veen_hub.ops.readiness import Readiness
from veen_hub.ops.realm_follower import RealmFollowing, policy_of
from veen_hub.ops.status_report import StatusReport
from veen_hub.ops.upkeep import Upkeep
from veen_hub.pipeline.batch_publisher import BatchPublisher
from veen_hub.pipeline.body_budget import BodyBudget
from veen_hub.pipeline.feed import Feed
from veen_hub.pipeline.intake import Intake
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.pending_requests import NEWCOMERS, PendingRequest
from veen_hub.pipeline.saturation import Saturation
from veen_hub.pipeline.sequencer import Sequencer
from veen_hub.pipeline.signer import ReceiptSigner
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.pipeline.threads import started_pool
from veen_hub.pipeline.uploads import Uploads
from veen_hub.pipeline.waiting_room import WaitingRoom
from veen_hub.pipeline.worker_process import has_cores
from veen_hub.replica.announcements import Announcements
from veen_hub.replica.handover import HandoverService, refusal_after
from veen_hub.replica.source import DirectorySource, ReplicaSource
from veen_storage import Batch, PendingEntry, Store, ViewStore

if TYPE_CHECKING:
    from veen_hub.replica.follower import ReplicaFollower

READER_THREADS: Final = 2
KEPT_JOURNAL_SEC: Final = 600.0
"""How often kept journal that is too old is removed."""
SUMMARY_SEC: Final = 60.0
"""How often the log gets a summary of submits."""


class Hub:
    """One running hub: create it, ``start`` it on an event loop, ``drain`` it, ``stop`` it."""

    owns_control: ClassVar = True
    """Whether the control label is this process's own, and not a copy (``shards``)."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        *,
        clock: Clock | None = None,
        policy: AdmissionPolicy | None = None,
        anchor: AnchorPublisher | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock or load_clock(config.clock)
        self.identity = store.identity
        self.profile = store.registry.profile
        self.limits = store.registry.limits
        with contextlib.suppress(
            IdentityError
        ):  # the clock's fault, not the configuration's: see ``Readiness``
            if config.replica_of is None:
                store.check_signing(self.hub_ts)
        self.metrics = Metrics()
        self.policy = policy or policy_of(config, self.identity.hub_id)
        self.admission = Admitter(config, store, self.policy)
        store.set_previous_label(self.admission.labels.previous)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopping = asyncio.Event()
        self.drained = asyncio.Event()
        """No further entry will come: followers that have everything may end."""
        self.log_ended = asyncio.Event()
        """No further batch will come: replicas that have everything may end."""
        self.failure: str | None = None
        """Why the pipeline has failed; the hub then ends."""
        self.failed = asyncio.Event()
        self.reopening = asyncio.Event()
        """The data directory must be opened again, for the primary's new key."""
        self._set_up_replication()
        self._set_up_pipeline()
        self._set_up_parts(anchor)
        self._chores: list[asyncio.Task[None]] = []

    def _set_up_replication(self) -> None:
        """Decide whether this hub may write at all: not a replica, nor one that has handed over (P9)."""
        self.announcements = Announcements()
        self.replica_source: ReplicaSource = DirectorySource(self.store)
        self.snapshot_running = False
        self.handover: Handover | None = self.store.read_handover()
        self.replica: ReplicaFollower | None = None
        self.signing_gate = SigningGate()
        if self.handover is not None:
            self.signing_gate.write_elsewhere(refusal_after(self.handover))
        elif self.config.replica_of is not None:
            self.signing_gate.write_elsewhere(
                f"this hub is a replica: send to the primary at {self.config.replica_of}"
            )

    def _set_up_pipeline(self) -> None:
        store, config = self.store, self.config
        self.feed = Feed()
        self.publisher = BatchPublisher(
            self.metrics,
            self.feed,
            self.announcements,
            stream_name=self.admission.stream_name,
            committed=self._committed,
        )
        saturation = Saturation()
        self.waiting_room = WaitingRoom(config.max_waiting, config.max_wait_ms / 1_000)
        self.metrics.count_overload(self.waiting_room.refused)
        use_processes = saturation.is_saturated if self._has_spare_core() else lambda: False
        self._signer = ReceiptSigner(enabled=use_processes)
        store.set_sign_many(self._signer)
        self._sequencer = Sequencer(
            store,
            self.clock,
            self.policy,
            gate=self.signing_gate,
            observe=self.publisher.observe,
            on_failure=self._fail,
        )
        self.feed.give_turn = self._sequencer.give_turn
        store.read.give_way = self._sequencer.give_way
        self._intake = Intake(
            self._sequencer,
            ProfileAndLimits(self.profile.profile_id, self.limits),
            self._admit,
            workers=config.workers,
            room=self.waiting_room,
            saturation=saturation,
            use_processes=use_processes,
            on_failure=self._fail,
        )
        self._readers = started_pool(READER_THREADS, "veen-read")
        self.log = LogAccess(self._sequencer, self._readers)
        self.uploads = Uploads()
        self.body_budget = BodyBudget()
        self.unsent = 0
        """Bytes of answers that are being sent."""

    def _set_up_parts(self, anchor: AnchorPublisher | None) -> None:
        config, store = self.config, self.store
        self._state = ViewStore(store.layout.view("hub"))
        self.admin_replays = AdminReplayGuard(self._state)
        self.seen_evidence = SeenEvidence()
        self.attachment_quota = AttachmentQuota(config.attachments, self._state, self.log)
        self.authorization = Authorization(
            self.log,
            store.read,
            self.admission.labels,
            issuers=self.admission.rules.issuers,
            limits=self.limits,
            control_label=self.admission.control_label,
            metrics=self.metrics,
            counts=self.publisher.counts,
        )
        self.upkeep = Upkeep(
            config,
            store,
            self.log,
            clock=self.clock,
            metrics=self.metrics,
            labels=self.admission.labels,
            anchor=anchor,
            control_label=self.admission.control_label,
            policy=self.policy,
            on_backlog=self.publisher.count_backlog,
            anchors_control=self.owns_control,
        )
        self.hub_log = self._make_hub_log(anchor)
        self._handing_over = HandoverService(
            store,
            self.log,
            self.signing_gate,
            self.uploads,
            origin=self.hub_log.origin,
            hub_ts=self.clock.now,
        )
        if config.replica_of is not None:
            # Imported here: only a replica needs the client.
            from veen_hub.replica.follower import ReplicaFollower  # noqa: PLC0415

            self.replica = ReplicaFollower(
                config,
                store,
                self.log,
                self.metrics,
                on_entries=self.publisher.announce,
                on_handover=self._handed_over,
                on_reopen=self._reopen,
            )
        self.realm_follower = RealmFollowing(
            self.policy,
            config.realm,
            hub_id=self.identity.hub_id,
            layout=store.layout,
            labels=self.admission.labels,
            log_access=self.log,
            clock=self.clock,
            hub_ts=lambda: self.hub_ts,
            issuers=self.admission.rules.issuers,
        )
        self.advertiser = HubAdvertiser(
            config.discovery,
            identity=self.identity,
            identity_sig=lambda: store.identity_signature,
            profile_id=self.profile.profile_id,
            signing_key=store.signing_key,
            hub_ts=self.clock.now,
            state=store.layout.view("discovery"),
        )
        self.status_report = StatusReport(
            config,
            store,
            self.policy,
            self.signing_gate,
            rules=self.admission.rules,
            control_label=self.admission.control_label,
            memories=self.hub_log.memories.names,
            load=lambda: self.highest_load,
            handover=lambda: self.handover,
            hub_ts=lambda: self.hub_ts,
        )
        url, ca = config.authority_url, config.authority_ca
        self.readiness = Readiness(
            store,
            self.policy,
            self.clock,
            self.log,
            self.signing_gate,
            authority=AuthorityProbe(url, ca) if url is not None else None,
            hub_ts=lambda: self.hub_ts,
            failure=lambda: "the hub is shutting down" if self.stopping.is_set() else self.failure,
            replica=self.replica,
        )

    def _make_hub_log(self, anchor: AnchorPublisher | None) -> HubLogService:
        return HubLogService(
            self.config,
            self.store,
            self.log,
            self.signing_gate,
            metrics=self.metrics,
            anchor=anchor,
            hub_ts=lambda: self.hub_ts,
        )

    def _has_spare_core(self) -> bool:
        """Return whether helper processes for CPU-bound batches would have a core of their own."""
        return has_cores()

    # --- running

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sequencer.start()
        self.publisher.start(self._loop, self.store.applied_entries)
        if self.replica is not None:
            self.replica.start()
        else:
            if self.handover is None:
                await self.upkeep.start()
            await self.hub_log.start()
        self.publisher.start_at(await self.log.read(self.store.read.newest_head))
        stored, stored_bytes = await self.log.read(self.store.attachments.recorded)
        self.metrics.attachments.inc(stored)
        self.metrics.attachment_bytes.inc(stored_bytes)
        self.attachment_quota.start_at(stored, stored_bytes)
        self.metrics.ready.set(0 if await self.log.read(self.readiness.local_problem) else 1)
        trim = partial(self.log.read, self.store.trim_kept_journal)
        chores = (
            Chore("summary", self.publisher.summarize, SUMMARY_SEC),
            Chore("kept journal", trim, KEPT_JOURNAL_SEC),
        )
        self._chores = [asyncio.create_task(chore.repeat()) for chore in chores]

    def _fail(self, why: str) -> None:
        """Record that the pipeline has failed; called from any thread."""
        if self.failure is None:
            self.failure = why
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self.failed.set)

    async def drain(self) -> None:
        """Accept nothing more, and settle what was accepted."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self.upkeep.stop()
        if self.replica is not None:
            await self.replica.stop()
        await self._intake.drain(self.failed)
        self.drained.set()
        self.feed.wake_all()
        if self.replica is None:
            await self.hub_log.drain()
        self.log_ended.set()

    async def stop(self) -> None:
        """Close the data directory, after ``drain``."""
        await self.log.read(self._sequencer.stop)
        self._signer.close()
        await self.uploads.drain()
        await self.log.read(self.store.close)
        self._state.close()
        self._readers.shutdown()
        await self.publisher.summarize()

    # --- submitting

    @property
    def load(self) -> float:
        """How full the queue of this process is, from 0 to 1."""
        return self.waiting_room.load

    @property
    def highest_load(self) -> float:
        """How full the fullest queue of all processes is; the proof of work follows it (SH1+ 5.2)."""
        return self.load

    def check_room(self, source: bytes) -> None:
        """Raise E.UNAVAILABLE if a request of this source would be refused, whatever it has."""
        self._intake.check_room(source)

    def overload(self, source: bytes, body: bytes) -> ApiError | None:  # noqa: ARG002 - see ``ShardHub``
        """Return the error for a request of this source if it would be refused because too much waits."""
        why = self.waiting_room.why_not(source, 1)
        return self.waiting_room.refuse(why) if why is not None else None

    def enter(
        self, wires: list[bytes], on_settled: Callable[[], None], source: bytes = NEWCOMERS
    ) -> PendingRequest:
        """Send messages through the pipeline; call ``on_settled`` when each has a receipt or an error."""
        return self._intake.enter(wires, on_settled, source)

    def _admit(self, submission: Submission, batch: Batch) -> PendingEntry:
        """In the sequencer: admit a message, and make the checkpoint that is then due."""
        placed = self.admission.admit(submission, batch)
        self.publisher.counts.accepted += 1
        self.upkeep.checkpoint_if_due(batch, placed.label)
        return placed

    def _committed(self, batch: Batch, by_label: Counter[Label]) -> None:
        """In the sequencer, after a committed batch: let the scheduled work know."""
        self.upkeep.committed(batch, by_label)
        self.hub_log.committed(by_label.total())

    # --- replica and handover (P9)

    def _reopen(self, why: str) -> None:
        log(logging.WARNING, "reopening", why=why)
        self.reopening.set()

    async def hand_over(self, request: HandoverRequest) -> Handover:
        """End this hub in favour of its successor; asking again returns the same record."""
        if self.handover is not None and self.handover.new_hub != request.new_hub:
            raise ApiError(Code.CONFLICT, refusal_after(self.handover))
        if self.handover is None:
            self._handed_over(await self._handing_over.hand_over(request))
            await self.upkeep.stop()
        assert self.handover is not None
        return self.handover

    def _handed_over(self, record: Handover) -> None:
        self.handover = record
        self.signing_gate.write_elsewhere(refusal_after(record))
        self.announcements.wake()

    # --- attachments

    async def admit_attachment(
        self, label: Label, client: ClientId, auth_ref: AuthRef | None, size: int
    ) -> bytes:
        """Run the auth stage for an attachment (H17); return the key its quota is counted under."""
        writer = AttachmentWriter(label, client, auth_ref)
        return await self.log.act(partial(self.admission.admit_writer, writer, size))

    # --- status

    @property
    def hub_ts(self) -> UnixTime:
        """The time in a receipt issued now; it never decreases (H3)."""
        return UnixTime(max(self.clock.now(), self.store.hub_ts))

    def status(self) -> Status:
        return self.status_report.status()

    def refresh_gauges(self) -> None:
        """Update the gauges that are read rather than counted, before a scrape."""
        with contextlib.suppress(Exception):  # a clock or policy of another package: ``Readiness`` says why
            self._refresh_ages()
        self.metrics.replicas.set(self.announcements.replicas)
        if self.replica is not None:
            self.metrics.replica_behind.set(self.replica.behind)
            self.metrics.replica_missing_attachments.set(self.replica.missing_attachments)
        self.metrics.queue_depth.set(self.waiting_room.waiting)
        self.metrics.estimated_wait_ms.set(self.waiting_room.estimated_wait * 1_000)
        self.metrics.apply_lag_bytes.set(self.store.lag)
        with contextlib.suppress(OSError):  # a lost volume must not fail the scrape
            disk = shutil.disk_usage(self.store.layout.root)
            self.metrics.disk_bytes.set(disk.total)
            self.metrics.disk_free_bytes.set(disk.free)
        self.publisher.refresh_applied(self.store.applied_entries)

    def _refresh_ages(self) -> None:
        """Update the gauges that depend on the clock."""
        self.hub_log.refresh_gauges()
        self.policy.stale(self.clock.now())  # makes the policy update the age of its view
        lag = self.policy.describe().get("lag_sec", "0")
        self.metrics.view_lag.set(int(lag) if lag.isdecimal() else math.inf)  # infinite before the first fold
