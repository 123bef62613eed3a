"""Delegated execution: an agent acts with the authority of a principal (spec-3 §4).

The delegation chain names capabilities from the principal to the agent: the first one gives the principal
its authority, and the subject of each one issues the next. A capability is a grant in the same log, which
its issuer has signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from veen_core.ids import AuthRef, OperationId, SchemaId, StreamId
from veen_overlays.operations.operation import IdentityId, operation
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record, RecordRule

MAX_CHAIN: int = 16
"""Longest delegation chain."""


@operation(
    "delegated.execution.v1",
    section="spec-3 4.2",
    rules=(
        RecordRule("D1: delegation_chain is not empty", lambda each: bool(each.delegation_chain)),
        RecordRule(
            f"delegation_chain has at most {MAX_CHAIN} capabilities",
            lambda each: len(each.delegation_chain) <= MAX_CHAIN,
        ),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedExecution(Record):
    """Perform an operation as an agent of a principal."""

    principal_identity: IdentityId
    agent_identity: IdentityId
    delegation_chain: tuple[AuthRef, ...]
    """Capabilities from the principal to the agent."""
    operation_schema: SchemaId
    operation_body: Any
    """The body of the embedded operation, as a map."""
    parent_operation_id: OperationId | None = None
    metadata: Any | None = None


class Capability(Protocol):
    """The parts of a capability that a chain depends on."""

    @property
    def issuer(self) -> bytes: ...
    @property
    def subject(self) -> bytes: ...
    @property
    def streams(self) -> Sequence[StreamId]: ...


def refused_chain(
    execution: DelegatedExecution,
    signer: bytes,
    chain: Sequence[Capability | None],
    *,
    is_authority: Callable[[bytes], bool],
    refused: Callable[[Any], Refusal | None],
) -> Refusal | None:
    """Why the chain gives the signer no authority of the principal; None if it does (spec-3 4.3, D2).

    ``chain`` holds the capability of each reference, None for an unknown one; ``refused`` returns why a
    capability does not count now. The agent must have signed the MSG itself: this log cannot verify an
    ``agent_identity`` that is not the signer's key.
    """
    links: list[Capability] = []
    for capability in chain:
        if capability is None:
            return Refusal.UNKNOWN_CAPABILITY
        if (why := refused(capability)) is not None:
            return why
        links.append(capability)
    if not links:
        return Refusal.EMPTY_CHAIN
    if not is_authority(links[0].issuer):
        return Refusal.ISSUER
    if links[0].subject != execution.principal_identity:
        return Refusal.PRINCIPAL
    if links[-1].subject != signer:
        return Refusal.AGENT
    for above, below in pairwise(links):
        if below.issuer != above.subject:
            return Refusal.BROKEN_CHAIN
        if not set(below.streams) <= set(above.streams):
            return Refusal.WIDER_SCOPE
    return None
