"""Changes that events make to the state of a domain; the state before them is not modified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veen_overlays.fold.layers import join
from veen_overlays.operations.domain.state import NO_ACCOUNT, DomainState
from veen_overlays.operations.grants import Grant, refused_grant
from veen_overlays.operations.payment import Domain
from veen_overlays.operations.refusal import Refusal

DEFAULT_DOMAIN: Final = Domain(authorities=(), negative_balances=False, grants_required=False)
"""The rules of a log without an ``operation.domain.v1``."""


class ChangedValues(dict[bytes, Any]):
    """The changed values of a map. A key that was not changed has its earlier value, or the default."""

    def __init__(self, before: Mapping[bytes, Any], default: Any = None) -> None:
        super().__init__()
        self.before = before
        self.default = default

    def __missing__(self, key: bytes) -> Any:
        return self.before.get(key, self.default)

    def get(self, key: bytes, default: Any = None) -> Any:
        found = super().get(key)
        return self.before.get(key, default) if found is None else found

    def result(self) -> Mapping[bytes, Any]:
        """The whole map after the changes."""
        return join(self.before, dict(self), lambda _, after: after)


class DomainChanges:
    """The changes of every part of a state."""

    def __init__(self, before: DomainState) -> None:
        self.domain = before.domain
        self.rules = DEFAULT_DOMAIN if before.domain is None else before.domain
        self.accounts = ChangedValues(before.accounts, NO_ACCOUNT)
        self.grants = ChangedValues(before.grants, ())
        self.subjects = ChangedValues(before.subjects)
        self.revocations = ChangedValues(before.revocations, {})
        self.operations = ChangedValues(before.operations)

    def result(self) -> DomainState:
        """The state after the changes."""
        return DomainState(
            self.domain,
            self.accounts.result(),
            self.grants.result(),
            self.subjects.result(),
            self.revocations.result(),
            self.operations.result(),
        )

    def set_rules(self, domain: Domain) -> None:
        """Replace the rules from the next operation on."""
        self.domain = self.rules = domain

    def refused(self, grant: Grant, hub_ts: int) -> Refusal | None:
        """Why a grant is not valid now; None if it is."""
        return refused_grant(grant, self.revocations, self.rules.authorities, hub_ts)
