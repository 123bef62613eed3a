"""The hub without HTTP: an open data directory, its pipeline, and the work it does by itself.

Handlers only decode, call one method here, and reply. Everything that changes the log goes through
``act``, which is the sequencer; everything that is read comes from ``store.read``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from veen_core import pow as proof_of_work
from veen_core import stream
from veen_core.client_state import ClientBounds
from veen_core.entry import Entry
from veen_core.errors import IdentityError, VeenError
from veen_core.ids import AuthRef, ClientId, Label, UnixTime, VerifyKey
from veen_core.protocols import Clock
from veen_core.status import Status
from veen_hub.admission import table
from veen_hub.admission.class_rates import Pace
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.admission.replay_guard import Orders, Reports
from veen_hub.admission.stateless import Submission, Supported
from veen_hub.admission.table import Hearing, Rules, Writer
from veen_hub.ops.anchors import Anchor
from veen_hub.ops.authority_probe import Authority
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import ClientKeys, HubConfig
from veen_hub.ops.metrics import Metrics
from veen_hub.ops.realm_follower import policy_of
from veen_hub.ops.upkeep import Upkeep
from veen_hub.pipeline.body_budget import Bodies
from veen_hub.pipeline.feed import Feed
from veen_hub.pipeline.intake import Intake, Pending
from veen_hub.pipeline.sequencer import Sequencer, Ticket
from veen_hub.pipeline.signer import Signer
from veen_hub.pipeline.uploads import Uploads
from veen_hub.pipeline.worker_process import has_cores
from veen_hub.version import VERSION
from veen_storage import Batch, Head, PendingEntry, StorageError, Store

T = TypeVar("T")

KEX1_LEVELS: Final = ("hardened", "meta")
"""spec-2 §8: where client keys have bounds."""


class Hub:
    """One running hub. Create it, ``start`` it on an event loop, ``stop`` it."""

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
        ):  # the clock's fault, not the configuration's: see ``not_ready``
            store.check_signing(self.hub_ts)
        self.metrics = Metrics()
        self.accepted = 0
        """Entries whose place was decided, in the sequencer's thread."""
        self._kept = 0
        """Those of batches that became durable."""
        self.metrics.stage.labels("accepted").set_function(lambda: self.accepted)
        self.feed = Feed()
        self.policy = policy or policy_of(config, self.identity.hub_id)
        routing_key = stream.routing_key(self.identity.hub_id)
        self.control_label = stream.control_label(routing_key)
        self.labels = LabelMap(routing_key, self.profile.epoch_sec, self.limits.max_epoch_skew_sec)
        self.labels.learn(config.stream_ids)
        self.labels.learn(id_ for token in store.tokens() for id_ in token.allow.stream_ids)
        store.set_previous_label(self.labels.previous)
        admin = store.registry.admin_pk
        self.admins: frozenset[VerifyKey] = frozenset({admin} if admin is not None else ())
        self.rules = Rules(
            gating=config.gating,
            issuers=self.admins | {VerifyKey.from_hex(issuer) for issuer in config.issuers},
            bounds=self._client_bounds(),
            control_label=self.control_label,
        )
        self.upkeep = Upkeep(
            config,
            store,
            self,
            clock=self.clock,
            metrics=self.metrics,
            labels=self.labels,
            anchor=anchor,
            control_label=self.control_label,
            policy=self.policy,
            on_backlog=self._count_backlog,
        )
        self._heard: Hearing | None = None
        self._pace = Pace()
        self._signer = Signer(apart=has_cores())
        store.set_sign_many(self._signer)
        self._sequencer = Sequencer(store, self.clock, self.policy, self._observe)
        self._intake = Intake(
            self._sequencer,
            Supported(self.profile.profile_id, self.limits),
            self._admit,
            workers=config.workers,
            max_waiting=config.max_waiting,
        )
        self.readers = ThreadPoolExecutor(2, thread_name_prefix="veen-read")
        self.uploads = Uploads()
        self.bodies = Bodies()
        self.unsent = 0
        """Bytes of answers that are being sent."""
        self._applied_before = 0
        self._stream_names = {stream.stream_id(name): name for name in config.streams}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopping = asyncio.Event()
        self.drained = asyncio.Event()
        """Nothing comes any more: followers that have everything may go."""
        self.reports = Reports()
        self.orders = Orders()
        url, ca = config.authority_url, config.authority_ca
        self._authority = Authority(url, ca) if url is not None else None
        self._last: Entry | Head | None = None

    def _client_bounds(self) -> ClientBounds | None:
        """As configured; from level hardened on KEX1+ 4.1 counts, with its own bounds if none are."""
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
        await self.upkeep.start()
        self._last = await self.reading(self.store.read.newest_head)
        stored, stored_bytes = await self.reading(self.store.attachments.recorded)
        self.metrics.attachments.inc(stored)
        self.metrics.attachment_bytes.inc(stored_bytes)
        self.metrics.ready.set(0 if await self.reading(self._not_ready) else 1)

    def _count_backlog(self, entries: int) -> None:
        """In the sequencer: count entries that the last run left without a checkpoint or anchor."""
        self.accepted += entries
        self._kept += entries
        self._applied_before += entries
        self.metrics.stage.labels("durable").inc(entries)

    async def drain(self) -> None:
        """Accept nothing more, and settle what was accepted."""
        await self.upkeep.stop()
        await self._intake.drain()
        self.drained.set()

    async def stop(self) -> None:
        """After ``drain``: let the data directory go."""
        await asyncio.to_thread(self._sequencer.stop)
        self._signer.close()
        self.readers.shutdown()
        self.uploads.close()
        await asyncio.to_thread(self.store.close)

    # --- submitting

    def enter(self, wires: list[bytes], then: Callable[[], None]) -> Pending:
        """Every message into the pipeline; ``then`` each has its outcome, a receipt or the error it gets."""
        return self._intake.enter(wires, then)

    def _admit(self, submission: Submission, batch: Batch) -> PendingEntry:
        """In the sequencer: the stateful half of the table, then the batch."""
        table.admit(submission, self._hearing(batch))
        placed = batch.add(submission, submission.wire, submission.leaf)
        self.accepted += 1
        self.upkeep.checkpoint_if_due(batch, placed.label)
        return placed

    def _observe(self, batch: Batch, seconds: float, sync_seconds: float, committed: bool) -> None:
        """In the sequencer's thread, after every batch; what can wait is done on the loop, after answers."""
        if committed:
            self._kept = self.accepted
        else:
            self.accepted = self._kept  # what the batch took in did not happen
        if not batch.items or self._loop is None:
            return
        entries = batch.entries if committed else []
        counts = Counter(entry.label for entry in entries)
        if committed:
            self.upkeep.committed(batch, counts)
        names = {label: self._stream_name(label, batch.hub_ts) for label in counts}
        times = (seconds, sync_seconds if committed else None)
        self._loop.call_soon_threadsafe(self._note, len(batch.items), times, entries, counts, names)

    def _note(
        self,
        actions: int,
        times: tuple[float, float | None],
        entries: list[Entry],
        counts: Counter[Label],
        names: dict[Label, str],
    ) -> None:
        """On the loop: metrics of a batch, and its entries for whoever follows."""
        seconds, sync_seconds = times
        self.metrics.commit_ms.observe(seconds * 1_000)
        self.metrics.batch_size.observe(actions)
        if sync_seconds is None:
            return
        self.metrics.fsync_ms.observe(sync_seconds * 1_000)
        if entries:
            self._last = entries[-1]
        self.metrics.stage.labels("durable").inc(len(entries))
        for label, count in counts.items():
            self.metrics.appends.labels(names[label]).inc(count)
        if self.feed.followers:
            self.feed.announce(entries)

    def _stream_name(self, label: Label, now: UnixTime) -> str:
        """As the configuration names it; all others count as one, so that metrics stay few."""
        found = self.labels.place(label, now).stream if self._stream_names else None
        return self._stream_names.get(found, "other") if found is not None else "other"

    async def act(self, action: Callable[[Batch], T], *, reads: bool = False) -> T:
        """Run one action in the sequencer; its result is durable when this returns.

        One that only ``reads`` is answered also while nothing can be acknowledged.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def answer(tickets: list[Ticket[Any]]) -> None:
            loop.call_soon_threadsafe(done.set_result, tickets[0].outcome)

        self._sequencer.put([Ticket(action, 0, reads)], answer)
        outcome = await asyncio.shield(done)
        if isinstance(outcome, VeenError):
            raise outcome
        return outcome  # type: ignore[no-any-return]  # what the action returned

    async def reading(self, read: Callable[[], T]) -> T:
        """A read that may touch the disk, off the loop."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, read)

    # --- authority

    async def check_writer(self, label: Label, client: ClientId, auth_ref: AuthRef | None, size: int) -> None:
        """The auth stage for what is not a MSG: an attachment's put (H17)."""
        writer = Writer(label, client, auth_ref)
        await self.act(lambda batch: table.admit_writer(writer, size, self._hearing(batch)))

    def _hearing(self, batch: Batch) -> Hearing:
        """One for all messages of a batch."""
        if self._heard is None or self._heard.view is not batch.view:
            self._heard = Hearing(batch.view, batch.hub_ts, self.rules, self.policy, self.labels, self._pace)
        return self._heard

    # --- what it says of itself

    def pow_difficulty(self) -> int:
        """Rises from ``difficulty`` to ``max_difficulty`` as the queue fills (SH1+ 5.2)."""
        settings = self.config.pow
        if not settings.max_difficulty:
            return settings.difficulty
        share = min(1.0, self._intake.waiting / self.config.max_waiting)
        return settings.difficulty + round(share * (settings.max_difficulty - settings.difficulty))

    @property
    def hub_ts(self) -> UnixTime:
        """What a receipt issued now would say; it never goes back (H3)."""
        return UnixTime(max(self.clock.now(), self.store.hub_ts))

    def status(self) -> Status:
        now = self.hub_ts
        scoped = self.config.gating
        enforces = [
            "order",
            "signatures",
            "limits",
            *(["cap tokens", "stream scope", "ttl", "rate"] if scoped else []),
            *(["client key bounds"] if self.rules.bounds is not None else []),
            *self.policy.enforces(),
        ]
        cannot = ["att_root (the hub never sees a payload header)", "cap_ref", "expires_at"]
        if not scoped:
            cannot.append("stream scope: gating is off, labels of unknown streams are opaque")
            if (
                self.config.level != "core"
                and self.config.realm is not None
                and self.config.realm.url is None
            ):
                cannot.append("who rules the realm: gating is off, anybody may write its admin streams")
        return Status(
            identity=self.identity,
            identity_sig=self._identity_signature,
            profile=self.profile,
            limits=self.limits,
            hub_ts=now,
            epoch=stream.epoch_at(now, self.profile.epoch_sec),
            control_label=self.control_label,
            gating=scoped,
            enforces=tuple(enforces),
            cannot_enforce=tuple(cannot),
            pow_salt=proof_of_work.pow_salt(self.identity.hub_id, now),
            pow_difficulty=self.pow_difficulty(),
            max_page_items=self.config.max_page_items,
            level=self.policy.describe().get("level", "core"),
            server_version=VERSION,
        )

    def last_entry(self) -> dict[str, object]:
        """For ``/healthz``: the newest entry (OBS0.3)."""
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
        """What is read off rather than counted, when somebody asks for metrics."""
        self.metrics.queue_depth.set(self._intake.waiting)
        self.metrics.apply_lag_bytes.set(self.store.lag)
        self.policy.stale(self.clock.now())  # a lag is counted from the time it was last asked
        lag = self.policy.describe().get("lag_sec", "0")
        self.metrics.view_lag.set(int(lag) if lag.isdecimal() else math.inf)  # never folded is not fresh
        self.metrics.stage.labels("applied").set(self._applied_before + self.store.applied_entries)

    async def not_ready(self) -> str | None:
        """Why the hub cannot do its work now, if so (spec-4 §10.1)."""
        if (why := await self.reading(self._not_ready)) is not None or self._authority is None:
            return why
        why = await self._authority.unreachable()
        return f"authority: {why}" if why is not None else None

    def _not_ready(self) -> str | None:
        if self.stopping.is_set():
            return "the hub is shutting down"
        if (why := self.store.poisoned) is not None:
            return f"storage: {why}; nothing is acknowledged until the hub is started again"
        if (why := self.policy.stale(self.clock.now())) is not None:
            return f"policy view: {why}"
        try:
            self.store.check_access()
            self.store.check_signing(self.hub_ts)
        except (OSError, StorageError, IdentityError) as exc:
            return f"data directory: {exc}"
        return None
