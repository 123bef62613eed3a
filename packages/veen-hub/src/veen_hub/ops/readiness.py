"""Readiness: whether the hub can accept messages now (spec-4 §10.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from veen_core.errors import IdentityError
from veen_core.ids import UnixTime
from veen_core.protocols import Clock
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.ops.authority_probe import AuthorityProbe
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import StorageError, Store


class Following(Protocol):
    """A replica's follower; ``problem`` says why reads may be out of date, or is None."""

    @property
    def problem(self) -> str | None: ...


class Readiness:
    """Checks pipeline, storage, memories, policy view, clock, signing key and authority."""

    def __init__(
        self,
        store: Store,
        policy: AdmissionPolicy,
        clock: Clock,
        log: LogAccess,
        gate: SigningGate,
        *,
        authority: AuthorityProbe | None,
        hub_ts: Callable[[], UnixTime],
        failure: Callable[[], str | None],
        replica: Following | None = None,
    ) -> None:
        """``failure`` returns why the hub is stopping or its pipeline has failed, or None.

        A hub with ``replica`` is ready for reads only.
        """
        self._replica = replica
        self._store = store
        self._policy = policy
        self._clock = clock
        self._log = log
        self._gate = gate
        self._authority = authority
        self._hub_ts = hub_ts
        self._failure = failure

    async def problem(self) -> str | None:
        """Return why the hub cannot accept messages now, or None if it can."""
        if (why := await self._log.read(self.local_problem)) is not None or self._authority is None:
            return why
        why = await self._authority.unreachable()
        return f"authority: {why}" if why is not None else None

    def local_problem(self) -> str | None:
        """Return a problem of this process and its data directory; may read the disk."""
        if (why := self._failure()) is not None:
            return why
        if (why := self._store.poisoned) is not None:
            return f"storage: {why}; nothing is acknowledged until the hub is started again"
        if self._replica is not None:
            return self._replica.problem
        if (why := self._gate.detail) is not None:
            return f"signing: {why}"
        try:
            if (why := self._policy.stale(self._clock.now())) is not None:
                return f"policy view: {why}"
            self._store.check_access()
            self._store.check_signing(self._hub_ts())
        except (OSError, StorageError, IdentityError) as exc:
            return f"data directory: {exc}"
        except Exception as exc:  # noqa: BLE001 - a clock or policy of another package may raise anything
            return f"clock or policy: {type(exc).__name__}: {exc}"
        return None
