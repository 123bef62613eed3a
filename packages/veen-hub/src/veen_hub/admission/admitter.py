"""The hub's admission: its rules, the labels it knows, and the context of a batch (§8.2)."""

from __future__ import annotations

from typing import Final

from veen_core import stream
from veen_core.client_state import ClientBounds
from veen_core.ids import Label, StreamId, UnixTime, VerifyKey
from veen_hub.admission import table
from veen_hub.admission.class_rates import ClassRates
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.admission.stateless import Submission
from veen_hub.admission.table import AdmissionSettings, AttachmentWriter, BatchContext
from veen_hub.ops.config import ClientKeys, HubConfig
from veen_storage import Batch, PendingEntry, Store

KEX1_LEVELS: Final = ("hardened", "meta", "access")
"""Levels at which client keys have bounds (spec-2 §8)."""


class Admitter:
    """Admits messages and writers, each in the sequencer's thread."""

    def __init__(self, config: HubConfig, store: Store, policy: AdmissionPolicy) -> None:
        self._policy = policy
        profile, limits, admin = store.registry.profile, store.registry.limits, store.registry.admin_pk
        routing_key = stream.routing_key(store.identity.hub_id)
        self.control_label = stream.control_label(routing_key)
        self.labels = LabelMap(routing_key, profile.epoch_sec, limits.max_epoch_skew_sec)
        self.labels.learn(config.stream_ids)
        self.labels.learn(id_ for token in store.tokens() for id_ in token.allow.stream_ids)
        self._stream_names: dict[StreamId, str] = {stream.stream_id(name): name for name in config.streams}
        self.admins: frozenset[VerifyKey] = frozenset({admin} if admin is not None else ())
        self.rules = AdmissionSettings(
            gating=config.gating,
            issuers=self.admins | set(config.issuers),
            bounds=_client_bounds(config),
            control_label=self.control_label,
        )
        self._class_rates = ClassRates(store.hub_ts)
        self._context: BatchContext | None = None

    def admit(self, submission: Submission, batch: Batch) -> PendingEntry:
        """Run the stateful rows, then place the message in the batch."""
        table.admit(submission, self._context_of(batch))
        return batch.add(submission, submission.wire, submission.leaf)

    def admit_writer(self, writer: AttachmentWriter, size: int, batch: Batch) -> bytes:
        """Run the auth stage for an attachment (H17); return the key its quota is counted under."""
        return table.admit_writer(writer, size, self._context_of(batch))

    def _context_of(self, batch: Batch) -> BatchContext:
        """Return the admission context of a batch, made once for all of its messages."""
        if self._context is None or self._context.view is not batch.view:
            self._context = BatchContext(
                batch.view, batch.hub_ts, self.rules, self._policy, self.labels, self._class_rates
            )
        return self._context

    def stream_name(self, label: Label, now: UnixTime) -> str:
        """Return the configured name of the label's stream; other labels share one, to bound the metrics."""
        found = self.labels.look_up(label, now).stream if self._stream_names else None
        return self._stream_names.get(found, "other") if found is not None else "other"


def _client_bounds(config: HubConfig) -> ClientBounds | None:
    """Return the configured bounds of client keys, or KEX1+ 4.1's from level hardened on."""
    keys = config.client_keys
    if keys is None and config.level in KEX1_LEVELS:
        keys = ClientKeys()
    if keys is None:
        return None
    return ClientBounds(
        max_client_id_lifetime_sec=keys.max_client_id_lifetime_sec,
        max_msgs_per_client_id_per_label=keys.max_msgs_per_client_id_per_label,
    )
