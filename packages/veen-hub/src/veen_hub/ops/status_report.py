"""The hub's status: its identity, its limits, what it enforces and what it cannot (CORE §6, spec-2 §8)."""

from __future__ import annotations

from collections.abc import Callable

from veen_core import pow as proof_of_work
from veen_core import stream
from veen_core.handover import Handover
from veen_core.hub_log import origin_of
from veen_core.ids import Label, UnixTime
from veen_core.status import Status
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.admission.table import AdmissionSettings
from veen_hub.ops.config import HubConfig
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.version import VERSION
from veen_storage import Store


class StatusReport:
    """Makes the answer to ``GET /v1/status``, and names the proof of work that a submit needs now."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        policy: AdmissionPolicy,
        signing_gate: SigningGate,
        *,
        rules: AdmissionSettings,
        control_label: Label,
        memories: tuple[str, ...],
        load: Callable[[], float],
        handover: Callable[[], Handover | None],
        hub_ts: Callable[[], UnixTime],
    ) -> None:
        """``memories``: names of the hub log's memories; ``load``: how full the queue is, from 0 to 1."""
        self._config = config
        self._store = store
        self._identity_signature = store.identity_signature
        self._policy = policy
        self._signing_gate = signing_gate
        self._rules = rules
        self._control_label = control_label
        self._memories = memories
        self._load = load
        self._handover = handover
        self._hub_ts = hub_ts

    def pow_difficulty(self) -> int:
        """Return the required proof of work, which rises as the queue fills (SH1+ 5.2)."""
        settings = self._config.pow
        if not settings.max_difficulty:
            return settings.difficulty
        return settings.difficulty + round(self._load() * (settings.max_difficulty - settings.difficulty))

    def status(self) -> Status:
        now = self._hub_ts()
        identity, registry = self._store.identity, self._store.registry
        return Status(
            identity=identity,
            identity_sig=self._identity_signature,
            profile=registry.profile,
            limits=registry.limits,
            hub_ts=now,
            epoch=stream.epoch_at(now, registry.profile.epoch_sec),
            control_label=self._control_label,
            gating=self._config.gating,
            enforces=self._enforces(),
            cannot_enforce=self._cannot_enforce(),
            pow_salt=proof_of_work.pow_salt(identity.hub_id, now),
            pow_difficulty=self.pow_difficulty(),
            max_page_items=self._config.max_page_items,
            level=self._policy.describe().get("level", "core"),
            server_version=VERSION,
            hub_log_origin=self._hub_log_origin(),
            memories=self._memories or None,
            not_signing=self._signing_gate.closed,
            replica_of=self._config.replica_of,
            handover=self._handover(),
        )

    def _hub_log_origin(self) -> str | None:
        """The origin of the hub log if it is not P1's default; a replica has its primary's origin."""
        held = self._store.hub_log.checkpoint
        if self._config.replica_of is None or held is None:
            return self._config.hub_log.origin
        usual = origin_of(self._store.identity.hub_id)
        return held.head.origin if held.head.origin != usual else None

    def _enforces(self) -> tuple[str, ...]:
        tls = self._config.tls
        return (
            "order",
            "signatures",
            "limits",
            *(("cap tokens", "stream scope", "ttl", "rate") if self._config.gating else ()),
            *(("client key bounds",) if self._rules.bounds is not None else ()),
            *(("one history after a restore",) if self._memories else ()),
            *(("client certificates",) if tls is not None and tls.client_ca is not None else ()),
            *self._policy.enforces(),
        )

    def _cannot_enforce(self) -> tuple[str, ...]:
        config = self._config
        cannot = ["att_root (the hub never sees a payload header)", "cap_ref", "expires_at"]
        if not self._memories:
            cannot.append("one history after a restore: no memory is configured (hub_log in hub.yaml)")
        if not config.gating:
            cannot.append("stream scope: gating is off, labels of unknown streams are opaque")
            if config.level != "core" and config.realm is not None and config.realm.url is None:
                cannot.append("who rules the realm: gating is off, anyone may write its admin streams")
        return tuple(cannot)
