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
from typing import TYPE_CHECKING, Final

from veen_core import pow as proof_of_work
from veen_core import stream
from veen_core.client_state import ClientBounds
from veen_core.entry import Entry
from veen_core.errors import ApiError, IdentityError
from veen_core.handover import Handover
from veen_core.hub_log import origin_of
from veen_core.ids import AuthRef, ClientId, Label, UnixTime, VerifyKey
from veen_core.protocols import Clock
from veen_core.rejection import Code
from veen_core.status import HandoverRequest, Status
from veen_hub.admission import table
from veen_hub.admission.attachment_quota import AttachmentQuota
from veen_hub.admission.authorization import Authorization
from veen_hub.admission.class_rates import ClassRates
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.admission.replay_guard import AdminReplayGuard, SeenEvidence
from veen_hub.admission.stateless import Submission, Supported
from veen_hub.admission.table import BatchContext, Rules, Writer
from veen_hub.ops.advertising import HubAdvertiser
from veen_hub.ops.anchors import Anchor
from veen_hub.ops.authority_probe import AuthorityProbe
from veen_hub.ops.chores import Chore
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import ClientKeys, HubConfig
from veen_hub.ops.hub_log import HubLogService
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.metrics import Metrics, StageCounts
from veen_hub.ops.readiness import Readiness
from veen_hub.ops.realm_follower import RealmFollower, policy_of
from veen_hub.ops.upkeep import Upkeep
from veen_hub.pipeline.body_budget import BodyBudget
from veen_hub.pipeline.feed import Feed
from veen_hub.pipeline.intake import Intake, Pending
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.sequencer import Sequencer
from veen_hub.pipeline.signer import Signer
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.pipeline.threads import started_pool
from veen_hub.pipeline.uploads import Uploads
from veen_hub.pipeline.worker_process import has_cores
from veen_hub.replica.announcements import Announcements
from veen_hub.replica.handover import HandoverService, refusal_after
from veen_hub.version import VERSION
from veen_storage import Batch, Head, PendingEntry, Store, ViewStore

if TYPE_CHECKING:
    from veen_hub.replica.follower import ReplicaFollower

KEX1_LEVELS: Final = ("hardened", "meta", "access")
"""Levels at which client keys have bounds (spec-2 §8)."""
READER_THREADS: Final = 2
KEPT_JOURNAL_SEC: Final = 600.0
"""How often kept journal that is too old is removed."""
SUMMARY_SEC: Final = 60.0
"""How often the log gets a summary of submits."""


class Hub:
    """One running hub: create it, ``start`` it on an event loop, ``drain`` it, ``stop`` it."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        *,
        clock: Clock | None = None,
        policy: AdmissionPolicy | None = None,
        anchor: Anchor | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock or load_clock(config.clock)
        self.identity = store.identity
        self._identity_signature = store.identity_signature
        self.profile = store.registry.profile
        self.limits = store.registry.limits
        with contextlib.suppress(
            IdentityError
        ):  # the clock's fault, not the configuration's: see ``Readiness``
            if config.replica_of is None:
                store.check_signing(self.hub_ts)
        self.metrics = Metrics()
        self._counts = StageCounts()
        self.metrics.stage.labels("accepted").set_function(lambda: self._counts.accepted)
        self.policy = policy or policy_of(config, self.identity.hub_id)
        self._set_up_labels()
        admin = store.registry.admin_pk
        self.admins: frozenset[VerifyKey] = frozenset({admin} if admin is not None else ())
        self.rules = Rules(
            gating=config.gating,
            issuers=self.admins | set(config.issuers),
            bounds=self._client_bounds(),
            control_label=self.control_label,
        )
        self._context: BatchContext | None = None
        self._class_rates = ClassRates()
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
        self._applied_before = 0
        self._last: Entry | Head | None = None
        self._summarized: tuple[float, dict[str, float]] = (0.0, {})
        self._chores: list[asyncio.Task[None]] = []

    def _set_up_labels(self) -> None:
        routing_key = stream.routing_key(self.identity.hub_id)
        self.control_label = stream.control_label(routing_key)
        self._labels = LabelMap(routing_key, self.profile.epoch_sec, self.limits.max_epoch_skew_sec)
        self._labels.learn(self.config.stream_ids)
        self._labels.learn(id_ for token in self.store.tokens() for id_ in token.allow.stream_ids)
        self.store.set_previous_label(self._labels.previous)
        self._stream_names = {stream.stream_id(name): name for name in self.config.streams}

    def _set_up_replication(self) -> None:
        """Decide whether this hub may write at all: not a replica, nor one that has handed over (P9)."""
        self.announcements = Announcements()
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
        self._signer = Signer(enabled=has_cores())
        store.set_sign_many(self._signer)
        self._sequencer = Sequencer(
            store,
            self.clock,
            self.policy,
            gate=self.signing_gate,
            observe=self._observe,
            on_failure=self._fail,
        )
        self._intake = Intake(
            self._sequencer,
            Supported(self.profile.profile_id, self.limits),
            self._admit,
            workers=config.workers,
            max_waiting=config.max_waiting,
            on_failure=self._fail,
        )
        self._readers = started_pool(READER_THREADS, "veen-read")
        self.log = LogAccess(self._sequencer, self._readers)
        self.feed = Feed()
        self.uploads = Uploads()
        self.body_budget = BodyBudget()
        self.unsent = 0
        """Bytes of answers that are being sent."""

    def _set_up_parts(self, anchor: Anchor | None) -> None:
        config, store = self.config, self.store
        self._state = ViewStore(store.layout.view("hub"))
        self.admin_replays = AdminReplayGuard(self._state)
        self.seen_evidence = SeenEvidence()
        self.attachment_quota = AttachmentQuota(config.attachments, self._state, self.log)
        self.authorization = Authorization(
            self.log,
            store.read,
            self._labels,
            issuers=self.rules.issuers,
            limits=self.limits,
            control_label=self.control_label,
            metrics=self.metrics,
            counts=self._counts,
        )
        self.upkeep = Upkeep(
            config,
            store,
            self.log,
            clock=self.clock,
            metrics=self.metrics,
            labels=self._labels,
            anchor=anchor,
            control_label=self.control_label,
            policy=self.policy,
            on_backlog=self._count_backlog,
        )
        self.hub_log = HubLogService(
            config,
            store,
            self.log,
            self.signing_gate,
            metrics=self.metrics,
            anchor=anchor,
            hub_ts=lambda: self.hub_ts,
        )
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
                on_entries=self._replicated,
                on_handover=self._handed_over,
                on_reopen=self._reopen,
            )
        self.realm_follower = RealmFollower(
            self.policy,
            config.realm,
            hub_id=self.identity.hub_id,
            layout=store.layout,
            labels=self._labels,
            log_access=self.log,
            clock=self.clock,
            hub_ts=lambda: self.hub_ts,
            issuers=self.rules.issuers,
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

    def _client_bounds(self) -> ClientBounds | None:
        """Return the configured bounds of client keys, or KEX1+ 4.1's from level hardened on."""
        keys = self.config.client_keys
        if keys is None and self.config.level in KEX1_LEVELS:
            keys = ClientKeys()
        if keys is None:
            return None
        return ClientBounds(
            max_client_id_lifetime_sec=keys.max_client_id_lifetime_sec,
            max_msgs_per_client_id_per_label=keys.max_msgs_per_client_id_per_label,
        )

    # --- running

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sequencer.start()
        for name in ("durable", "checkpointed", "anchored"):
            self.metrics.stage.labels(name).set(0)
        self._applied_before = -self.store.applied_entries
        if self.replica is not None:
            self.replica.start()
        else:
            if self.handover is None:
                await self.upkeep.start()
            await self.hub_log.start()
        self._last = await self.log.read(self.store.read.newest_head)
        stored, stored_bytes = await self.log.read(self.store.attachments.recorded)
        self.metrics.attachments.inc(stored)
        self.metrics.attachment_bytes.inc(stored_bytes)
        self.attachment_quota.stored_bytes = stored_bytes
        self.metrics.ready.set(0 if await self.log.read(self.readiness.local_problem) else 1)
        trim = partial(self.log.read, self.store.trim_kept_journal)
        chores = (
            Chore("summary", self._summarize, SUMMARY_SEC),
            Chore("kept journal", trim, KEPT_JOURNAL_SEC),
        )
        self._chores = [asyncio.create_task(chore.repeat()) for chore in chores]

    def _count_backlog(self, entries: int) -> None:
        """In the sequencer: count entries that the last run left without a checkpoint or anchor."""
        self._counts.accepted += entries
        self._counts.durable += entries
        self._applied_before += entries
        self.metrics.stage.labels("durable").inc(entries)

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
        await self._summarize()

    # --- submitting

    def enter(self, wires: list[bytes], on_settled: Callable[[], None]) -> Pending:
        """Send messages through the pipeline; call ``on_settled`` when each has a receipt or an error."""
        return self._intake.enter(wires, on_settled)

    def _admit(self, submission: Submission, batch: Batch) -> PendingEntry:
        """In the sequencer: run the stateful rows, then place the message in the batch."""
        table.admit(submission, self._context_of(batch))
        placed = batch.add(submission, submission.wire, submission.leaf)
        self._counts.accepted += 1
        self.upkeep.checkpoint_if_due(batch, placed.label)
        return placed

    def _observe(self, batch: Batch, seconds: float, sync_seconds: float, committed: bool) -> None:
        """In the sequencer, after every batch: record it, and leave the rest to the event loop."""
        counts = self._counts
        if committed:
            counts.durable = counts.accepted
        else:
            counts.accepted = counts.durable
        if not batch.items or self._loop is None:
            return
        entries = batch.entries if committed else []
        by_label = Counter(entry.label for entry in entries)
        if committed:
            self.upkeep.committed(batch, by_label)
            self.hub_log.committed(len(entries))
        names = {label: self._stream_name(label, batch.hub_ts) for label in by_label}
        times = (seconds, sync_seconds if committed else None)
        self._loop.call_soon_threadsafe(self._publish, len(batch.items), times, entries, by_label, names)

    def _publish(
        self,
        actions: int,
        times: tuple[float, float | None],
        entries: list[Entry],
        by_label: Counter[Label],
        names: dict[Label, str],
    ) -> None:
        """On the event loop: update the metrics of a batch and announce its entries to followers."""
        seconds, sync_seconds = times
        self.metrics.commit_ms.observe(seconds * 1_000)
        self.metrics.batch_size.observe(actions)
        if sync_seconds is None:
            return
        self.metrics.fsync_ms.observe(sync_seconds * 1_000)
        self.announcements.wake()
        if entries:
            self._last = entries[-1]
        self.metrics.stage.labels("durable").inc(len(entries))
        for label, count in by_label.items():
            self.metrics.appends.labels(names[label]).inc(count)
        if self.feed.followers:
            self.feed.announce(entries)

    # --- replica and handover (P9)

    def _replicated(self, entries: list[Entry]) -> None:
        """On the event loop: announce entries of the primary that are durable here."""
        self.announcements.wake()
        if entries:
            self._last = entries[-1]
            self.metrics.stage.labels("durable").inc(len(entries))
        if self.feed.followers:
            self.feed.announce(entries)

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

    def _stream_name(self, label: Label, now: UnixTime) -> str:
        """Return the configured name of the label's stream; all others share one, to keep metrics few."""
        found = self._labels.look_up(label, now).stream if self._stream_names else None
        return self._stream_names.get(found, "other") if found is not None else "other"

    async def _summarize(self) -> None:
        """Log how many messages were accepted and refused since the last summary."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        accepted, refused = self.metrics.submit_counts()
        before, refused_before = self._summarized
        self._summarized = accepted, refused
        new = {code: int(count - refused_before.get(code, 0)) for code, count in refused.items()}
        new = {code: count for code, count in new.items() if count}
        if accepted != before or new:
            log(logging.INFO, "submits", accepted=int(accepted - before), refused=new)

    # --- attachments

    async def admit_attachment(
        self, label: Label, client: ClientId, auth_ref: AuthRef | None, size: int
    ) -> bytes:
        """Run the auth stage for an attachment (H17); return the key its quota is counted under."""
        writer = Writer(label, client, auth_ref)
        return await self.log.act(lambda batch: table.admit_writer(writer, size, self._context_of(batch)))

    def _context_of(self, batch: Batch) -> BatchContext:
        """Return the admission context of a batch, made once for all of its messages."""
        if self._context is None or self._context.view is not batch.view:
            self._context = BatchContext(
                batch.view, batch.hub_ts, self.rules, self.policy, self._labels, self._class_rates
            )
        return self._context

    # --- status

    def pow_difficulty(self) -> int:
        """Return the required proof of work, which rises as the queue fills (SH1+ 5.2)."""
        settings = self.config.pow
        if not settings.max_difficulty:
            return settings.difficulty
        share = min(1.0, self._intake.waiting / self.config.max_waiting)
        return settings.difficulty + round(share * (settings.max_difficulty - settings.difficulty))

    @property
    def hub_ts(self) -> UnixTime:
        """The time in a receipt issued now; it never decreases (H3)."""
        return UnixTime(max(self.clock.now(), self.store.hub_ts))

    def status(self) -> Status:
        now = self.hub_ts
        return Status(
            identity=self.identity,
            identity_sig=self._identity_signature,
            profile=self.profile,
            limits=self.limits,
            hub_ts=now,
            epoch=stream.epoch_at(now, self.profile.epoch_sec),
            control_label=self.control_label,
            gating=self.config.gating,
            enforces=self._enforces(),
            cannot_enforce=self._cannot_enforce(),
            pow_salt=proof_of_work.pow_salt(self.identity.hub_id, now),
            pow_difficulty=self.pow_difficulty(),
            max_page_items=self.config.max_page_items,
            level=self.policy.describe().get("level", "core"),
            server_version=VERSION,
            hub_log_origin=self._hub_log_origin(),
            memories=self.hub_log.memories.names or None,
            not_signing=self.signing_gate.closed,
            replica_of=self.config.replica_of,
            handover=self.handover,
        )

    def _hub_log_origin(self) -> str | None:
        """The origin of the hub log if it is not the usual one; a replica has its primary's."""
        held = self.store.hub_log.checkpoint
        if self.replica is None or held is None:
            return self.config.hub_log.origin
        return held.head.origin if held.head.origin != origin_of(self.identity.hub_id) else None

    def _enforces(self) -> tuple[str, ...]:
        tls = self.config.tls
        return (
            "order",
            "signatures",
            "limits",
            *(("cap tokens", "stream scope", "ttl", "rate") if self.config.gating else ()),
            *(("client key bounds",) if self.rules.bounds is not None else ()),
            *(("no second history after a restore",) if self.hub_log.memories.names else ()),
            *(("client certificates",) if tls is not None and tls.client_ca is not None else ()),
            *self.policy.enforces(),
        )

    def _cannot_enforce(self) -> tuple[str, ...]:
        config = self.config
        cannot = ["att_root (the hub never sees a payload header)", "cap_ref", "expires_at"]
        if not self.hub_log.memories.names:
            cannot.append("no second history after a restore: no memory is configured (hub_log in hub.yaml)")
        if not config.gating:
            cannot.append("stream scope: gating is off, labels of unknown streams are opaque")
            if config.level != "core" and config.realm is not None and config.realm.url is None:
                cannot.append("who rules the realm: gating is off, anyone may write its admin streams")
        return tuple(cannot)

    def last_entry(self) -> dict[str, object]:
        """Return facts about the newest entry, for ``/healthz`` (OBS0.3)."""
        last = self._last
        if last is None:
            return {"peaks_count": 0, "last_stream_seq": 0, "last_mmr_root": None}
        peaks = last.stream_seq.bit_count()
        return {
            "peaks_count": peaks,
            "last_stream_seq": last.stream_seq,
            "last_mmr_root": (last.receipt if isinstance(last, Entry) else last).mmr_root.hex(),
        }

    def refresh_gauges(self) -> None:
        """Update the gauges that are read rather than counted, before a scrape."""
        self.hub_log.refresh_gauges()
        self.metrics.replicas.set(self.announcements.replicas)
        if self.replica is not None:
            self.metrics.replica_behind.set(self.replica.behind)
            self.metrics.replica_missing_attachments.set(self.replica.missing_attachments)
        self.metrics.queue_depth.set(self._intake.waiting)
        self.metrics.apply_lag_bytes.set(self.store.lag)
        with contextlib.suppress(OSError):  # a scrape does not fail because the volume is gone
            disk = shutil.disk_usage(self.store.layout.root)
            self.metrics.disk_bytes.set(disk.total)
            self.metrics.disk_free_bytes.set(disk.free)
        self.policy.stale(self.clock.now())  # makes the policy update the age of its view
        lag = self.policy.describe().get("lag_sec", "0")
        self.metrics.view_lag.set(int(lag) if lag.isdecimal() else math.inf)  # infinite before the first fold
        self.metrics.stage.labels("applied").set(self._applied_before + self.store.applied_entries)
