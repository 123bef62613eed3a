"""A hub of level access admits by grants and revocations alone (spec-3 3.3, 3.4, A1, A2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from test_operations import ADMIN, ANN, BOB, EVE, NOON, Signed, grant, log, ref

from veen_core.cap import CapToken, mint
from veen_core.ids import AuthRef, ClientId, HubId, Label, MmrRoot, StreamId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import FoldedPrefix, Level, PolicyView
from veen_overlays.identifiers import realm_id
from veen_overlays.operations.access import AccessRevoke
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.overlays import GRANTS

ISSUER = SigningKey(SigningSeed(b"\x09" * 32))


def policy(*signed: Signed, level: Level = Level.ACCESS) -> ViewPolicy:
    folded = GRANTS.fold(log(*signed)).inner
    prefix = FoldedPrefix(Label(bytes(32)), len(signed), MmrRoot(bytes(32)), NOON, folded)
    view = PolicyView(
        level=level,
        realm=realm_id("shop"),
        hub_id=HubId(bytes(32)),
        access=prefix,
        issuers=frozenset({ADMIN, bytes(ISSUER.public)}),
    )
    return ViewPolicy(view, lambda _label: None, 30)


class Asked:
    """A question about a message of Bob's."""

    label, client_id, hub_ts = Label(bytes(32)), ClientId(BOB), UnixTime(NOON)

    def __init__(self, auth_ref: AuthRef, token: CapToken | None) -> None:
        self.auth_ref, self.token = auth_ref, token


def revoked(made: ViewPolicy, auth_ref: AuthRef, token: CapToken | None = None) -> str | None:
    found = made.granted(auth_ref, UnixTime(NOON))
    return made.revoked(Asked(auth_ref, token or (found[0] if found else None)))


def everything(who: bytes = BOB) -> AccessRevoke:
    return AccessRevoke(subject_identity=IdentityId(who))


GIVEN = grant(BOB, maximum_rate_per_second=3)
REF = ref(ADMIN, GIVEN)
GRANTED: Signed = (ADMIN, NOON, GIVEN)


def test_a_grant_is_the_token_of_its_auth_ref_and_lasts_until_its_expiry() -> None:
    found = policy(GRANTED).granted(REF, UnixTime(NOON))
    assert found is not None
    token, issued_at = found
    assert (token.auth_ref, issued_at, token.expires_at(issued_at)) == (REF, NOON, GIVEN.expiry_time)
    assert policy(GRANTED).granted(AuthRef(bytes(32)), UnixTime(NOON)) is None
    assert policy().granted(REF, UnixTime(NOON)) is None


def test_below_level_access_grants_admit_nobody() -> None:
    assert policy(GRANTED, level=Level.META).granted(REF, UnixTime(NOON)) is None


def test_the_token_of_a_stranger_s_grant_names_the_stranger_as_issuer() -> None:
    """A1: the row CAP_ISSUER of the hub's table then refuses it, as any other token."""
    found = policy((EVE, NOON, GIVEN)).granted(ref(EVE, GIVEN), UnixTime(NOON))
    assert found is not None
    assert found[0].issuer_pk == EVE


CASES: dict[str, tuple[Iterable[Signed], bool]] = {
    "not revoked": ((GRANTED,), False),
    "all of the subject's": ((GRANTED, (ADMIN, NOON, everything())), True),
    "this one": (
        (
            GRANTED,
            (ADMIN, NOON, AccessRevoke(subject_identity=IdentityId(BOB), target_capability_reference=REF)),
        ),
        True,
    ),
    "another subject's": ((GRANTED, (ADMIN, NOON, everything(ANN))), False),
    "by a stranger": ((GRANTED, (EVE, NOON, everything())), False),
    "before the grant": (((ADMIN, NOON, everything()), GRANTED), False),
    "and granted again": ((GRANTED, (ADMIN, NOON, everything()), GRANTED), False),
}


@pytest.mark.parametrize("case", CASES)
def test_which_revocations_end_a_grant(case: str) -> None:
    signed, ended = CASES[case]
    assert (revoked(policy(*signed), REF) is not None) is ended


@pytest.mark.parametrize(("who", "ended"), [(ADMIN, True), (EVE, False)], ids=["authority", "stranger"])
def test_a_bootstrapped_token_can_be_revoked_too(who: bytes, ended: bool) -> None:
    token = mint(ISSUER, ClientId(BOB), [StreamId(b"\x01" * 32)], 60)
    made: Any = policy((who, NOON, everything()))
    assert (revoked(made, token.auth_ref, token) is not None) is ended
