"""The identity overlay, clause by clause (id-spec, cited as ID)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from logs import log_of

from veen_core import (
    DEFAULT_PROFILE,
    Binding,
    DhKey,
    DhSecret,
    PayloadHeader,
    SigningKey,
    SigningSeed,
    mint,
    seal_msg,
)
from veen_core.cap import CapToken
from veen_core.hashing import H
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    DhPublicKey,
    Label,
    SchemaId,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_overlays.identifiers import (
    CtxId,
    DevicePk,
    OrgPk,
    PrincipalPk,
    ctx_id,
    ctx_stream,
    device_id,
    group_id,
    handle_stream,
    org_id,
    org_stream,
    principal_id,
    principal_stream,
    realm_id,
    scoped_org_id,
)
from veen_overlays.identity.authentication import (
    Authenticated,
    AuthenticationDenied,
    AuthenticationInput,
    AuthenticationStep,
    authenticate,
    rotate_device,
)
from veen_overlays.identity.directory import IdentityDirectory
from veen_overlays.identity.records import (
    CtxProfile,
    Device,
    DeviceFlags,
    ExternalLink,
    Group,
    HandleMap,
    OrgProfile,
    Principal,
    Revoke,
    Role,
)
from veen_overlays.identity.state import IDENTITY, on_stream
from veen_overlays.schema.record import Record, Undecodable, decode_record

PUBLISHED = Path(__file__).parent / "vectors" / "published"


def key(name: str) -> SigningKey:
    return SigningKey(SigningSeed(H(name.encode())))


ANN, PHONE, LAPTOP = key("ann"), key("phone"), key("laptop")
ANN_PK, PHONE_PK = PrincipalPk(ANN.public), DevicePk(PHONE.public)
REALM, OTHER_REALM = realm_id("app"), realm_id("other")
ANN_CTX = ctx_id(ANN_PK, REALM)
BEN_CTX = CtxId(b"\x0b" * 32)
ORG = org_id(OrgPk(b"\x0c" * 32))
OPS = group_id(ORG, "ops")
NOW = UnixTime(1_700_000_000)


def published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_bytes())  # type: ignore[no-any-return]


def test_published_identifiers_are_derived() -> None:
    realm = realm_id(published("realm_id")["inputs"]["name"])
    assert realm.hex() == published("realm_id")["expected"]
    pk = PrincipalPk.from_hex(published("principal_id")["inputs"]["pk"])
    assert principal_id(pk).hex() == published("principal_id")["expected"]
    pk = PrincipalPk.from_hex(published("context_id")["inputs"]["principal_pk"])
    assert ctx_id(pk, realm).hex() == published("context_id")["expected"]
    device = DevicePk.from_hex(published("device_id")["inputs"]["pk"])
    assert device_id(device).hex() == published("device_id")["expected"]
    org = org_id(OrgPk.from_hex(published("group_id")["inputs"]["org_pk"]))
    assert group_id(org, published("group_id")["inputs"]["name"]).hex() == published("group_id")["expected"]


def test_published_streams_are_derived() -> None:
    vector = published("identity_stream_ids")
    pk, realm = PrincipalPk.from_hex(vector["inputs"]["pk"]), realm_id(vector["inputs"]["realm"])
    streams = {
        "principal": principal_stream(pk),
        "ctx": ctx_stream(ctx_id(pk, realm), realm),
        "org": org_stream(org_id(OrgPk(pk))),
        "handle_ns": handle_stream(realm),
    }
    assert {name: stream.hex() for name, stream in streams.items()} == vector["expected"]


def test_the_published_schema_id_is_derived() -> None:
    assert HandleMap.SCHEMA.hex() == published("schema_handle_map")["expected"]


def test_an_account_differs_in_every_realm() -> None:
    assert ctx_id(ANN_PK, REALM) != ctx_id(ANN_PK, OTHER_REALM)
    assert scoped_org_id(ORG, REALM) not in (ORG, scoped_org_id(ORG, OTHER_REALM))


# --- records


def principal(info: dict[str, Any] | None = None) -> Principal:
    return Principal(principal_pk=ANN_PK, created_at=NOW, info=info)


def device(pk: DevicePk = PHONE_PK, **more: Any) -> Device:
    fields: dict[str, Any] = {"created_at": NOW} | more
    return Device(
        principal_pk=ANN_PK,
        device_id=device_id(pk),
        device_pk=pk,
        dh_pk=DhPublicKey(b"\x0d" * 32),
        **fields,
    )


def directory(*records: Record) -> IdentityDirectory:
    return IdentityDirectory(merged=IDENTITY.fold(log_of(*records)).inner)


def test_a_device_with_another_id_and_an_unknown_target_type_are_undecodable() -> None:
    wrong = device().encode().replace(bytes(device_id(PHONE_PK)), b"\x00" * 32)
    found = decode_record((Device,), wrong)
    assert isinstance(found, Undecodable)
    assert "device_id is derived from device_pk" in found.why


@pytest.mark.parametrize("handle", ["@ann", "ann", "ann@example.com", "a.b-c_d+e@x.org", "7"])
def test_a_valid_handle_is_accepted(handle: str) -> None:
    made = HandleMap(realm_id=REALM, handle=handle, target_type="ctx", target_id=ANN_CTX, ts=NOW)
    assert decode_record((HandleMap,), made.encode()) == made


@pytest.mark.parametrize("handle", ["", "@", "Ann", "ann ", "ann@", "ánn", "-ann", "a" * 65, "a@b@c"])
def test_an_invalid_handle_is_refused(handle: str) -> None:
    made = HandleMap(realm_id=REALM, handle=handle, target_type="ctx", target_id=ANN_CTX, ts=NOW)
    assert made.broken_rule() is not None


def test_a_link_and_a_revocation_need_a_target() -> None:
    """ID 10.2, 11.1: at least one of."""
    assert ExternalLink(realm_id=REALM, provider="p", external_sub="s", ts=NOW).broken_rule() is not None
    assert Revoke(principal_pk=ANN_PK, ts=NOW).broken_rule() is not None
    assert Revoke(device_id=device_id(PHONE_PK), ts=NOW).broken_rule() is None


# --- principals and devices (§6)


def test_a_later_principal_record_replaces_info() -> None:
    shown = IDENTITY.view(IDENTITY.fold(log_of(principal({"a": 1}), principal({"b": 2}))).inner)
    assert shown["principals"][bytes(ANN_PK)]["info"] == {"b": 2}


ACTIVE_CASES: dict[str, tuple[tuple[Record, ...], str | None]] = {
    "never published": ((), "no such device"),
    "published": ((device(),), None),
    "not disabled": ((device(flags=DeviceFlags(disabled=False)),), None),
    "disabled": ((device(flags=DeviceFlags(disabled=True)),), "disabled"),
    "enabled again": ((device(flags=DeviceFlags(disabled=True)), device()), None),
    "expires now": ((device(expires_at=NOW),), None),
    "expired": ((device(expires_at=UnixTime(NOW - 1)),), "expired"),
    "revoked": ((device(), Revoke(device_id=device_id(PHONE_PK), ts=NOW)), "revoked"),
    "published again after revocation": (
        (device(), Revoke(device_id=device_id(PHONE_PK), ts=NOW), device()),
        "revoked",
    ),
}


@pytest.mark.parametrize("case", ACTIVE_CASES.values(), ids=ACTIVE_CASES)
def test_a_device_is_active_by_its_last_record_and_unless_revoked(
    case: tuple[tuple[Record, ...], str | None],
) -> None:
    """ID 6.2, 11.1."""
    records, why = case
    found = directory(*records).inactive(ANN_PK, device_id(PHONE_PK), NOW)
    assert found is None if why is None else why in (found or "")


def test_a_principal_speaks_only_on_its_own_stream() -> None:
    """ID 6.1, 6.2: principal_pk must be the stream's; ID 11.1: nor may it revoke on another's stream."""
    mallory = PrincipalPk(key("mallory").public)
    foreign = replace(device(), principal_pk=mallory)
    stream = principal_stream(ANN_PK)
    folded = on_stream(stream).fold(log_of(principal(), device(DevicePk(LAPTOP.public)), foreign)).inner
    held = IdentityDirectory(streams={stream: folded})
    assert held.inactive(ANN_PK, device_id(PHONE_PK), NOW) is not None
    assert held.inactive(ANN_PK, device_id(DevicePk(LAPTOP.public)), NOW) is None
    theirs = principal_stream(mallory)
    attack = (
        on_stream(theirs).fold(log_of(Revoke(device_id=device_id(DevicePk(LAPTOP.public)), ts=NOW))).inner
    )
    both = IdentityDirectory(streams={stream: folded, theirs: attack})
    assert both.inactive(ANN_PK, device_id(DevicePk(LAPTOP.public)), NOW) is None


# --- accounts, organisations, groups, roles (§7, §8)


def test_a_profile_is_the_one_with_the_greatest_updated_at_then_stream_seq() -> None:
    def profile(name: str, at: int) -> CtxProfile:
        return CtxProfile(ctx_id=ANN_CTX, realm_id=REALM, display_name=name, updated_at=UnixTime(at))

    found = directory(profile("new", 5), profile("old", 4)).profile(ANN_CTX, REALM)
    assert found is not None
    assert found.display_name == "new"
    found = directory(profile("one", 5), profile("two", 5)).profile(ANN_CTX, REALM)
    assert found is not None
    assert found.display_name == "two"
    assert directory().profile(ANN_CTX, OTHER_REALM) is None


def test_an_organisation_profile_is_a_register() -> None:
    def org(name: str, at: int) -> OrgProfile:
        return OrgProfile(org_id=ORG, display_name=name, created_at=NOW, updated_at=UnixTime(at))

    found = directory(org("b", 9), org("a", 8)).org(ORG)
    assert found is not None
    assert found.display_name == "b"


def group(at: int, add: tuple[CtxId, ...] = (), remove: tuple[CtxId, ...] = (), name: str = "ops") -> Group:
    return Group(
        org_id=ORG,
        group_id=OPS,
        name=name,
        members_add=add or None,
        members_remove=remove or None,
        updated_at=UnixTime(at),
    )


def test_a_member_is_an_account_whose_last_addition_precedes_no_removal() -> None:
    """ID 8.2."""
    both = (ANN_CTX, BEN_CTX)
    assert directory(group(1, add=both)).members(ORG, OPS) == set(both)
    assert directory(group(1, add=both), group(2, remove=(ANN_CTX,))).members(ORG, OPS) == {BEN_CTX}
    again = directory(group(1, add=both), group(2, remove=both), group(3, add=(ANN_CTX,)))
    assert again.members(ORG, OPS) == {ANN_CTX}
    assert directory(group(2, remove=both), group(1, add=both)).members(ORG, OPS) == set()
    assert directory(group(1, add=both, remove=(ANN_CTX,))).members(ORG, OPS) == set(both)


def test_a_groups_name_is_a_register() -> None:
    shown = IDENTITY.view(IDENTITY.fold(log_of(group(2, name="new"), group(1, name="old"))).inner)
    assert [each["name"] for each in shown["groups"].values()] == ["new"]


def role(name: str, **more: Any) -> Role:
    return Role(org_id=ORG, role=name, ts=NOW, **more)


def test_roles_add_up_directly_and_through_groups() -> None:
    """ID 8.3."""
    held = directory(
        group(1, add=(ANN_CTX,)),
        role("editor", targets_ctx=(ANN_CTX,)),
        role("admin", targets_group=(OPS,)),
        role("auditor", targets_ctx=(BEN_CTX,)),
        role("local", targets_ctx=(ANN_CTX,), realm_id=OTHER_REALM),
    )
    assert held.roles(ORG, ANN_CTX, REALM) == {"editor", "admin"}
    assert held.roles(ORG, ANN_CTX, OTHER_REALM) == {"editor", "admin", "local"}
    assert held.roles(ORG, BEN_CTX, REALM) == {"auditor"}


def test_leaving_a_group_ends_its_roles_and_a_revoked_organisation_gives_none() -> None:
    given = (group(1, add=(ANN_CTX,)), role("admin", targets_group=(OPS,)))
    assert directory(*given, group(2, remove=(ANN_CTX,))).roles(ORG, ANN_CTX, REALM) == set()
    assert directory(*given, Revoke(org_id=ORG, ts=NOW)).roles(ORG, ANN_CTX, REALM) == set()


# --- names (§10)


def handle(target: CtxId, ts: int, kind: Any = "ctx", realm: Any = REALM) -> HandleMap:
    return HandleMap(realm_id=realm, handle="@ann", target_type=kind, target_id=target, ts=UnixTime(ts))


def test_a_handle_resolves_by_its_latest_record() -> None:
    """ID 10.1: every writer of the realm's handle stream may reassign a handle."""
    assert directory(handle(ANN_CTX, 5), handle(BEN_CTX, 6)).resolve(REALM, "@ann") == BEN_CTX
    assert directory(handle(ANN_CTX, 5), handle(BEN_CTX, 4)).resolve(REALM, "@ann") == ANN_CTX
    assert directory(handle(CtxId(ORG), 5, "org")).resolve(REALM, "@ann") == ORG
    assert directory(handle(ANN_CTX, 5)).resolve(OTHER_REALM, "@ann") is None


def test_an_external_subject_is_linked_by_its_latest_record() -> None:
    def link(ctx: CtxId, ts: int) -> ExternalLink:
        return ExternalLink(realm_id=REALM, ctx_id=ctx, provider="oidc", external_sub="7", ts=UnixTime(ts))

    held = directory(link(ANN_CTX, 1), link(BEN_CTX, 2))
    found = held.linked(ctx_stream(ANN_CTX, REALM), REALM, "oidc", "7")
    assert found is not None
    assert found.ctx_id == BEN_CTX
    assert held.linked(ctx_stream(ANN_CTX, REALM), REALM, "oidc", "8") is None


# --- authentication (§9.2)

APP = StreamId(b"\x21" * 32)
BASE = (principal(), device())


def claim(token: CapToken | None, signer: SigningKey = PHONE, **more: Any) -> AuthenticationInput:
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=Label(b"\x03" * 32),
        client_id=ClientId(signer.public),
        client_seq=ClientSeq(1),
        prev_ack=StreamSeq(0),
        auth_ref=None if token is None else token.auth_ref,
    )
    header = PayloadHeader(schema=SchemaId(b"\x04" * 32))
    reader = DhKey(DhSecret(b"\x05" * 32)).public
    sealed = seal_msg(
        signer, reader, binding, header, b"hi", profile=DEFAULT_PROFILE, ephemeral=DhSecret(b"\x06" * 32)
    )
    fields: dict[str, Any] = {
        "msg": sealed.msg,
        "wire": sealed.wire,
        "token": token,
        "issued_at": NOW,
        "realm": REALM,
        "streams": (APP,),
        "now": NOW,
    }
    return AuthenticationInput(**fields | more)


def token(issuer: SigningKey = ANN, subject: SigningKey = PHONE, ttl: int = 60) -> CapToken:
    return mint(issuer, ClientId(subject.public), [APP], ttl)


def test_a_device_with_its_principals_token_is_the_account() -> None:
    found = authenticate(claim(token()), directory(*BASE))
    assert found == Authenticated(ANN_CTX, ANN_PK, device_id(PHONE_PK))


def test_a_principal_is_known_by_its_device_records_alone() -> None:
    """ID §14: level Core asks for id.device.v1, and for no principal record."""
    devices = [record for record in BASE if not isinstance(record, Principal)]
    assert len(devices) < len(BASE)
    assert isinstance(authenticate(claim(token()), directory(*devices)), Authenticated)


DENIALS: dict[AuthenticationStep, tuple[AuthenticationInput, tuple[Record, ...]]] = {
    AuthenticationStep.SIGNATURE: (replace(claim(token()), wire=claim(token(ttl=61)).wire), BASE),
    AuthenticationStep.TOKEN_PRESENT: (claim(None), BASE),
    AuthenticationStep.TOKEN_CHAIN: (claim(replace(token(), sig_chain=token(ttl=61).sig_chain)), BASE),
    AuthenticationStep.TOKEN_SUBJECT: (claim(token(subject=LAPTOP)), BASE),
    AuthenticationStep.TOKEN_STREAMS: (claim(token(), streams=(APP, StreamId(b"\x22" * 32))), BASE),
    AuthenticationStep.TOKEN_TTL: (claim(token(), now=UnixTime(NOW + 61)), BASE),
    AuthenticationStep.TOKEN_REVOKED: (
        claim(token()),
        (*BASE, Revoke(revoked_auth_ref=token().auth_ref, ts=NOW)),
    ),
    AuthenticationStep.PRINCIPAL: (claim(token(issuer=key("somebody"))), BASE),
    AuthenticationStep.CTX_REVOKED: (claim(token()), (*BASE, Revoke(ctx_id=ANN_CTX, realm_id=REALM, ts=NOW))),
    AuthenticationStep.DEVICE_ACTIVE: (claim(token()), (principal(),)),
    AuthenticationStep.ROLES: (claim(token(), org=ORG, roles=("admin",)), BASE),
}


@pytest.mark.parametrize("step", AuthenticationStep)
def test_authentication_says_which_step_failed(step: AuthenticationStep) -> None:
    asked, records = DENIALS[step]
    found = authenticate(asked, directory(*records))
    assert isinstance(found, AuthenticationDenied)
    assert found.step is step
    assert found.why


def test_a_token_of_another_message_or_never_authorized_is_denied() -> None:
    other = replace(claim(token()), token=token(ttl=61))
    found = authenticate(other, directory(*BASE))
    assert isinstance(found, AuthenticationDenied)
    assert found.step is AuthenticationStep.TOKEN_PRESENT
    found = authenticate(claim(token(), issued_at=None), directory(*BASE))
    assert isinstance(found, AuthenticationDenied)
    assert found.step is AuthenticationStep.TOKEN_TTL


def test_a_revocation_in_one_realm_leaves_the_others() -> None:
    held = directory(*BASE, Revoke(ctx_id=ANN_CTX, realm_id=OTHER_REALM, ts=NOW))
    assert isinstance(authenticate(claim(token()), held), Authenticated)
    everywhere = directory(*BASE, Revoke(ctx_id=ANN_CTX, ts=NOW))
    assert isinstance(authenticate(claim(token()), everywhere), AuthenticationDenied)


@pytest.mark.parametrize(
    ("revoked", "step"),
    [
        ({"device_id": device_id(PHONE_PK)}, AuthenticationStep.DEVICE_ACTIVE),
        ({"revoked_auth_ref": token().auth_ref}, AuthenticationStep.TOKEN_REVOKED),
        ({"ctx_id": ANN_CTX, "realm_id": REALM}, AuthenticationStep.CTX_REVOKED),
    ],
    ids=["device", "token", "account"],
)
def test_an_organisations_revocation_counts_for_questions_on_its_behalf(
    revoked: dict[str, Any], step: AuthenticationStep
) -> None:
    """ID 11.1, "Stream: stream_id_principal or stream_id_org"; for others it does not count."""
    mine, theirs = principal_stream(ANN_PK), org_stream(ORG)
    record = Revoke(org_id=ORG, ts=NOW, **revoked)
    held = IdentityDirectory(
        streams={
            mine: on_stream(mine).fold(log_of(*BASE)).inner,
            theirs: on_stream(theirs).fold(log_of(record)).inner,
        }
    )
    assert isinstance(authenticate(claim(token()), held), Authenticated)
    found = authenticate(claim(token(), org=ORG), held)
    assert isinstance(found, AuthenticationDenied)
    assert found.step is step
    elsewhere = authenticate(claim(token(), org=org_id(OrgPk(b"\x0e" * 32))), held)
    assert isinstance(elsewhere, Authenticated)


def test_required_roles_are_found_through_groups() -> None:
    held = directory(*BASE, group(1, add=(ANN_CTX,)), role("admin", targets_group=(OPS,)))
    assert isinstance(authenticate(claim(token(), org=ORG, roles=("admin",)), held), Authenticated)


def test_rotating_a_device_disables_the_old_one_and_publishes_the_new_one() -> None:
    """ID 11.2."""
    new = device(DevicePk(LAPTOP.public))
    held = directory(*BASE, *rotate_device(device(), new, NOW, auth_ref=AuthRef(token().auth_ref)))
    old = authenticate(claim(token()), held)
    assert isinstance(old, AuthenticationDenied)
    assert old.step is AuthenticationStep.TOKEN_REVOKED
    assert held.inactive(ANN_PK, device_id(PHONE_PK), NOW) == "the device is disabled"
    fresh = authenticate(claim(token(subject=LAPTOP), signer=LAPTOP), held)
    assert isinstance(fresh, Authenticated)


HOMES: dict[str, tuple[Record, tuple[StreamId, ...]]] = {
    "principal": (principal(), (principal_stream(ANN_PK),)),
    "device": (device(), (principal_stream(ANN_PK),)),
    "profile": (
        CtxProfile(ctx_id=ANN_CTX, realm_id=REALM, updated_at=NOW),
        (ctx_stream(ANN_CTX, REALM),),
    ),
    "organisation": (OrgProfile(org_id=ORG, created_at=NOW, updated_at=NOW), (org_stream(ORG),)),
    "group": (group(1), (org_stream(ORG),)),
    "role": (role("admin", targets_ctx=(ANN_CTX,)), (org_stream(ORG),)),
    "handle": (handle(ANN_CTX, 1), (handle_stream(REALM),)),
    "link of both": (
        ExternalLink(realm_id=REALM, ctx_id=ANN_CTX, org_id=ORG, provider="p", external_sub="s", ts=NOW),
        (ctx_stream(ANN_CTX, REALM), org_stream(ORG)),
    ),
    "revocation by a principal": (
        Revoke(principal_pk=ANN_PK, device_id=device_id(PHONE_PK), ts=NOW),
        (principal_stream(ANN_PK),),
    ),
    "revocation by an organisation": (Revoke(org_id=ORG, ts=NOW), (org_stream(ORG),)),
}


@pytest.mark.parametrize("case", HOMES.values(), ids=HOMES)
def test_a_record_counts_on_its_own_streams_and_nowhere_else(
    case: tuple[Record, tuple[StreamId, ...]],
) -> None:
    """§6-§11, "Stream"."""
    record, home_streams = case
    log = log_of(record)
    for home in home_streams:
        assert on_stream(home).view(on_stream(home).fold(log).inner) != {}
    elsewhere = on_stream(StreamId(b"\x33" * 32))
    assert elsewhere.view(elsewhere.fold(log).inner) == {}


def test_a_directory_asks_the_organisations_own_stream() -> None:
    stream = org_stream(ORG)
    mine = on_stream(stream).fold(log_of(group(1, add=(ANN_CTX,)), role("admin", targets_group=(OPS,)))).inner
    forged = on_stream(handle_stream(REALM)).fold(log_of(role("root", targets_ctx=(ANN_CTX,)))).inner
    held = IdentityDirectory(streams={stream: mine, handle_stream(REALM): forged})
    assert held.roles(ORG, ANN_CTX, REALM) == {"admin"}
