"""The control plane, clause by clause (spec-2; RESOLUTIONS H6, H7)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from handovers import handed_over, hub_of, key_of
from logs import log_of

from veen_core.cap import Rate, TokenHash
from veen_core.errors import EncodeError
from veen_core.ids import AuthRef, ClientId, HubId, Label, MmrRoot, SchemaId, StreamId, UnixTime
from veen_core.utc import format_utc
from veen_core.validity import until
from veen_core.wire import Wire
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import (
    DEFAULT_HANDLING,
    FOREVER_SEC,
    HANDLING,
    FoldedPrefix,
    Level,
    PolicyView,
)
from veen_overlays.control.records import (
    Authority,
    HandedOver,
    LabelClass,
    Revocation,
    RevokedId,
    SchemaDescriptor,
    admin_stream,
    label_class_stream,
    revocation_stream,
    schema_stream,
)
from veen_overlays.control.state import (
    AUTHORITIES,
    LABEL_CLASSES,
    REVOCATIONS,
    SCHEMAS,
    authority_at,
    schema_of,
)
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import RealmId, realm_id
from veen_overlays.schema.record import Record, Undecodable, decode_record

PUBLISHED = Path(__file__).parent / "vectors" / "published"
REALM = realm_id("plant")
STREAM = StreamId(b"\x01" * 32)
HERE, THERE = HubId(b"\x0a" * 32), HubId(b"\x0b" * 32)
LABEL, CLIENT = Label(b"\x02" * 32), ClientId(b"\x03" * 32)
NOW = 1_700_000_000


def published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_bytes())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("realm_stream_fed_admin", admin_stream),
        ("realm_stream_revocation", revocation_stream),
        ("realm_stream_schema_meta", schema_stream),
    ],
)
def test_published_admin_streams_are_derived(name: str, stream: Any) -> None:
    vector = published(name)
    assert stream(RealmId.from_hex(vector["inputs"]["realm_id"])).hex() == vector["expected"]


def test_published_schema_ids_are_derived() -> None:
    assert LabelClass.SCHEMA.hex() == published("schema_label_class")["expected"]
    assert Revocation.SCHEMA.hex() == published("schema_revocation")["expected"]


def test_the_published_revocation_window_is_active_as_stated() -> None:
    vector = published("revocation_window")
    record = Revocation(kind="client-id", target=RevokedId(CLIENT), **vector["inputs"])
    found = {f"active({t})": record.active(t) for t in (9_999, 10_000, 10_299, 10_300)}
    assert found | {"expires_at": until(record.ts, record.ttl)} == vector["expected"]


# --- FED1, AUTH1


def authority(primary: HubId, ts: int = NOW, ttl: int = 100, **more: Any) -> Authority:
    fields: dict[str, Any] = {"policy": "single-primary", "replica_hubs": ()} | more
    return Authority(
        realm_id=REALM, stream_id=STREAM, primary_hub=primary, ts=UnixTime(ts), ttl=ttl, **fields
    )


def bound(overlay: Overlay[Any], *records: Record, as_of: int = NOW) -> FoldedPrefix[Any]:
    state = overlay.fold(log_of(*records)).inner
    return FoldedPrefix(LABEL, len(records), MmrRoot(b"\x0e" * 32), as_of, state)


def view(level: Level = Level.META, **parts: Any) -> PolicyView:
    empty: dict[str, Any] = {
        "authorities": bound(AUTHORITIES),
        "revocations": bound(REVOCATIONS),
        "classes": bound(LABEL_CLASSES),
    }
    return PolicyView(level=level, realm=REALM, hub_id=HERE, **empty | parts)


def test_a_record_is_active_from_ts_for_ttl_seconds() -> None:
    state = AUTHORITIES.fold(log_of(authority(THERE))).inner
    active = [t for t in range(NOW - 2, NOW + 103) if authority_at(state, REALM, STREAM, t) is not None]
    assert active == list(range(NOW, NOW + 100))


def test_of_two_active_records_the_earlier_counts_until_it_ends() -> None:
    """RESOLUTIONS H7: a record in force cannot be replaced before it ends, whatever the order of arrival."""
    mine, theirs = authority(HERE, NOW, 100), authority(THERE, NOW + 10, 1_000)
    for order in ((mine, theirs), (theirs, mine)):
        state = AUTHORITIES.fold(log_of(*order)).inner
        for t, primary in ((NOW + 99, HERE), (NOW + 100, THERE)):
            found = authority_at(state, REALM, STREAM, t)
            assert found is not None
            assert found.primary_hub == primary


def test_of_two_records_of_one_time_the_lower_primary_counts() -> None:
    state = AUTHORITIES.fold(log_of(authority(THERE), authority(HERE))).inner
    found = authority_at(state, REALM, STREAM, NOW)
    assert found is not None
    assert found.primary_hub == HERE


OLD, NEW, NEXT = (hub_of(key_of(number)) for number in range(3))


def primary_at(now: int, *records: Record) -> HubId | None:
    found = authority_at(AUTHORITIES.fold(log_of(*records)).inner, REALM, STREAM, now)
    return None if found is None else found.primary_hub


def test_the_successor_of_a_primary_has_the_rest_of_its_lease() -> None:
    """RESOLUTIONS P9, H7: the holder of a lease may give it up; a later record does not shorten it."""
    lease, passed = authority(OLD, NOW, 100), handed_over(REALM, 0, 1, NOW + 10)
    rival = authority(HERE, NOW + 5, 1_000)
    for records in ((lease, rival, passed), (passed, rival, lease)):
        found = [primary_at(t, *records) for t in (NOW + 9, NOW + 10, NOW + 99, NOW + 100)]
        assert found == [OLD, NEW, NEW, HERE]


def test_a_hub_that_was_replaced_twice_has_one_successor() -> None:
    passed = handed_over(REALM, 0, 1, NOW + 10), handed_over(REALM, 1, 2, NOW + 20)
    assert [primary_at(t, authority(OLD), *passed) for t in (NOW + 19, NOW + 20)] == [NEW, NEXT]


def test_handovers_in_a_circle_end() -> None:
    passed = handed_over(REALM, 0, 1, NOW), handed_over(REALM, 1, 0, NOW)
    assert primary_at(NOW, authority(OLD), *passed) in (OLD, NEW)


def test_of_two_handovers_the_earlier_counts() -> None:
    """A hub that signs a second one, later, cannot take the lease back from its successor."""
    passed = handed_over(REALM, 0, 2, NOW + 20), handed_over(REALM, 0, 1, NOW + 10)
    assert primary_at(NOW + 30, authority(OLD), *passed) == NEW


def test_a_handover_of_another_realm_or_by_another_hub_passes_nothing() -> None:
    assert primary_at(NOW, authority(OLD), handed_over(realm_id("other"), 0, 1, NOW)) == OLD
    assert primary_at(NOW, authority(OLD), handed_over(REALM, 2, 1, NOW)) == OLD


def test_a_handover_that_its_hub_did_not_sign_is_no_record() -> None:
    good, other = handed_over(REALM, 0, 1, NOW), handed_over(REALM, 2, 1, NOW)
    for forged in (
        {"identity": other.identity},
        {"handover": good.handover[:-1] + bytes([good.handover[-1] ^ 1])},
        {"handover": b"no handover"},
    ):
        with pytest.raises(EncodeError, match="signed by a key of the hub"):
            dataclasses.replace(good, **forged).encode()
        body = Wire.encode(dataclasses.replace(good, **forged))
        assert isinstance(decode_record((HandedOver,), body), Undecodable)


def test_the_successor_accepts_and_the_other_hubs_name_it() -> None:
    """spec-2 3.3 after a cutover."""
    held = bound(AUTHORITIES, authority(OLD), handed_over(REALM, 0, 1, NOW))
    at = {hub: dataclasses.replace(view(authorities=held), hub_id=hub) for hub in (OLD, NEW, HERE)}
    assert at[NEW].not_primary(STREAM, NOW) is None
    for other in (OLD, HERE):
        assert NEW.hex() in (at[other].not_primary(STREAM, NOW) or "")


def test_only_the_primary_of_a_stream_accepts() -> None:
    """spec-2 3.3."""
    theirs = view(authorities=bound(AUTHORITIES, authority(THERE)))
    why = theirs.not_primary(STREAM, NOW)
    assert why is not None
    assert "not primary for label" in why
    assert THERE.hex() in why
    assert view(authorities=bound(AUTHORITIES, authority(HERE))).not_primary(STREAM, NOW) is None
    multi = bound(AUTHORITIES, authority(THERE, policy="multi-primary"))
    assert view(authorities=multi).not_primary(STREAM, NOW) is None


def test_streams_with_several_primaries_are_counted_in_the_status() -> None:
    """spec-2 3.3, step 3: SHOULD record that a label is multi-primary, for operational monitoring."""
    many = bound(AUTHORITIES, authority(THERE, policy="multi-primary"))
    held = view(Level.FEDERATED, authorities=many)
    assert (held.multi_primary(NOW), held.multi_primary(NOW + 100)) == ({STREAM}, set())
    assert view(Level.CORE, authorities=many).multi_primary(NOW) == set()
    single = view(Level.FEDERATED, authorities=bound(AUTHORITIES, authority(THERE)))
    assert single.multi_primary(NOW) == set()
    for each, shown in ((held, 1), (single, 0)):
        policy = ViewPolicy(each, lambda _label: None, 5)
        policy.stale(UnixTime(NOW))
        assert sum("accepts messages: 1 " in line for line in policy.enforces()) == shown


def test_a_stream_without_a_record_or_unknown_is_accepted() -> None:
    held = view(authorities=bound(AUTHORITIES, authority(THERE)))
    assert held.not_primary(StreamId(b"\x09" * 32), NOW) is None
    assert held.not_primary(None, NOW) is None
    assert held.not_primary(STREAM, NOW + 100) is None


def test_a_record_of_another_realm_is_ignored() -> None:
    foreign = Authority(
        realm_id=realm_id("elsewhere"),
        stream_id=STREAM,
        primary_hub=THERE,
        replica_hubs=(),
        policy="single-primary",
        ts=UnixTime(NOW),
        ttl=100,
    )
    assert view(authorities=bound(AUTHORITIES, foreign)).not_primary(STREAM, NOW) is None


def test_a_record_with_an_unknown_policy_is_undecodable() -> None:
    body = authority(HERE).encode().replace(b"single-primary", b"double-primary")
    assert isinstance(decode_record((Authority,), body), Undecodable)


# --- KEX1+


def revocation(kind: Any, target: bytes, **more: Any) -> Revocation:
    return Revocation(kind=kind, target=RevokedId(target), ts=UnixTime(NOW), **more)


TOKEN, AUTH = TokenHash(b"\x04" * 32), AuthRef(b"\x05" * 32)


@pytest.mark.parametrize(
    ("kind", "target"), [("client-id", CLIENT), ("auth-ref", AUTH), ("cap-token", TOKEN)]
)
def test_a_revoked_target_is_refused_during_its_period(kind: str, target: bytes) -> None:
    """spec-2 4.3."""
    held = view(revocations=bound(REVOCATIONS, revocation(kind, target, ttl=10, reason="lost")))
    assert held.revoked(CLIENT, AUTH, TOKEN, NOW) == f"{kind} revoked at {format_utc(NOW)}: lost"
    assert held.revoked(CLIENT, AUTH, TOKEN, NOW - 1) is None
    assert held.revoked(CLIENT, AUTH, TOKEN, NOW + 10) is None
    for_ever = view(revocations=bound(REVOCATIONS, revocation(kind, target)))
    assert for_ever.revoked(CLIENT, AUTH, TOKEN, NOW + 10**9) is not None


def test_the_kind_of_a_revocation_matters() -> None:
    held = view(revocations=bound(REVOCATIONS, revocation("auth-ref", CLIENT)))
    assert held.revoked(CLIENT, None, None, NOW) is None
    assert held.revoked(CLIENT, AuthRef(CLIENT), None, NOW) is not None


def test_a_revocation_on_another_admin_stream_does_not_count() -> None:
    summary = LABEL_CLASSES.fold(log_of(revocation("client-id", CLIENT)))
    assert (summary.events, summary.foreign) == (0, 1)


# --- LCLASS0, META0+


def test_a_label_is_handled_by_its_class() -> None:
    """spec-2 6.2."""
    wallet = LabelClass(label=LABEL, class_="wallet", retention_hint=60)
    held = view(classes=bound(LABEL_CLASSES, LabelClass(label=LABEL, class_="log"), wallet))
    assert held.handling(LABEL) == HANDLING["wallet"]
    assert (held.pad_block(LABEL), held.pad_block(Label(b"\x09" * 32))) == (256, 0)
    assert held.handling(Label(b"\x09" * 32)) == DEFAULT_HANDLING
    odd = view(classes=bound(LABEL_CLASSES, LabelClass(label=LABEL, class_="odd")))
    assert odd.handling(LABEL) == DEFAULT_HANDLING


OWN = Rate(per_sec=10, burst=3)


@pytest.mark.parametrize(
    ("class_", "own", "wanted"),
    [
        ("bulk", OWN, Rate(per_sec=3, burst=1)),
        ("admin", OWN, Rate(per_sec=40, burst=12)),
        ("control", Rate(per_sec=0, burst=0), Rate(per_sec=0, burst=0)),
        ("user", OWN, None),
        ("odd", OWN, None),
        ("bulk", None, None),
        ("log", None, Rate(per_sec=1, burst=2)),
        ("log", OWN, Rate(per_sec=1, burst=2)),
    ],
)
def test_a_class_gets_a_share_of_the_tokens_rate_or_its_configured_rate(
    class_: str, own: Rate | None, wanted: Rate | None
) -> None:
    """spec-2 6.2: rates of None are the token's own, if it has one."""
    held = view(classes=bound(LABEL_CLASSES, LabelClass(label=LABEL, class_=class_)))
    assert held.rate(LABEL, own, {"log": Rate(per_sec=1, burst=2)}) == wanted
    assert held.rate(Label(b"\x09" * 32), own, {"log": OWN}) is None


def test_the_admin_streams_are_kept_for_ever_whatever_their_class() -> None:
    elsewhere = Label(b"\x09" * 32)
    hints = [
        LabelClass(label=LABEL, class_="log", retention_hint=1),
        LabelClass(label=elsewhere, class_="log", retention_hint=2),
        LabelClass(label=Label(b"\x0a" * 32), class_="log"),
    ]
    held = view(classes=bound(LABEL_CLASSES, *hints))
    assert held.needed()["label-class"][1].label == LABEL  # type: ignore[union-attr]
    assert held.retention() == {elsewhere: 2, LABEL: FOREVER_SEC}
    hardened = view(Level.HARDENED, classes=bound(LABEL_CLASSES, *hints))
    assert elsewhere not in hardened.retention(), "classes are of level meta"
    authorities = view(Level.FEDERATED, authorities=bound(AUTHORITIES))
    assert authorities.retention() == {LABEL: FOREVER_SEC}, "nor by the hub's default rule"


def test_the_wire_key_of_a_class_is_class() -> None:
    assert b"eclass" in LabelClass(label=LABEL, class_="user").encode()


def test_a_schema_is_described_by_its_latest_registration() -> None:
    def describe(version: str, ts: int) -> SchemaDescriptor:
        return SchemaDescriptor(
            schema_id_=SchemaId(Revocation.SCHEMA),
            name="veen.revocation.v1",
            version=version,
            ts=UnixTime(ts),
        )

    state = SCHEMAS.fold(log_of(describe("v1", 5), describe("v0", 4))).inner
    found = schema_of(state, SchemaId(Revocation.SCHEMA))
    assert found is not None
    assert found.version == "v1"
    assert schema_of(state, SchemaId(b"\x09" * 32)) is None


# --- levels and age


@pytest.mark.parametrize(
    ("level", "streams"),
    [
        (Level.CORE, set()),
        (Level.FEDERATED, {"authority"}),
        (Level.HARDENED, {"authority", "revocation"}),
        (Level.META, {"authority", "revocation", "label-class"}),
    ],
)
def test_a_level_enforces_and_needs_the_profiles_it_includes(level: Level, streams: set[str]) -> None:
    """spec-2 §8."""
    held = view(
        level,
        authorities=bound(AUTHORITIES, authority(THERE)),
        revocations=bound(REVOCATIONS, revocation("client-id", CLIENT)),
        classes=bound(LABEL_CLASSES, LabelClass(label=LABEL, class_="bulk")),
    )
    assert set(held.needed()) == streams
    assert (held.not_primary(STREAM, NOW) is not None) == ("authority" in streams)
    assert (held.revoked(CLIENT, None, None, NOW) is not None) == ("revocation" in streams)
    assert (held.handling(LABEL) != DEFAULT_HANDLING) == ("label-class" in streams)
    assert len(held.enforces()) == list(Level).index(level)


def test_a_view_never_folded_or_too_old_is_stale() -> None:
    held = view(Level.HARDENED, revocations=bound(REVOCATIONS, as_of=NOW - 5))
    assert held.stale(NOW, 5) is None
    assert held.lag_sec(NOW) == 5
    assert "revocation stream was last read to its end 6 s ago" in (held.stale(NOW + 1, 5) or "")
    missing = view(Level.HARDENED, revocations=None)
    assert "never folded" in (missing.stale(NOW, 5) or "")
    assert missing.lag_sec(NOW) is None
    assert view(Level.CORE, authorities=None, revocations=None).stale(NOW, 0) is None


def test_a_view_names_the_prefix_it_was_folded_from() -> None:
    shown = view(Level.FEDERATED, authorities=bound(AUTHORITIES, authority(HERE))).describe(NOW + 3)
    assert shown["level"] == "federated"
    assert shown["lag_sec"] == "3"
    assert shown["authority"] == f"{LABEL.hex()}@1 {'0e' * 32}"
    assert view(Level.META).needed()["label-class"][0] == label_class_stream(REALM)
