"""Discovery: descriptors, who may publish them, expiry, and queries (spec-5, RESOLUTIONS P16)."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from discovery_logs import (
    FIRST,
    IDENTITIES,
    KEYS,
    ROTATED_AT,
    Plain,
    filters,
    hubs,
    logs,
    overlays,
    said,
    services,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from veen_core import cbor
from veen_core.ids import ClientId, HubId, HubPk, ProfileId, StreamId, UnixTime
from veen_core.keys import SigningKey
from veen_overlays.discovery import DISCOVERY, Directory, hub_descriptor, listing
from veen_overlays.discovery import query as asked
from veen_overlays.discovery import records as disc
from veen_overlays.discovery.connecting import choose_services
from veen_overlays.discovery.identifiers import overlay_id
from veen_overlays.discovery.state import MAX_DESCRIPTOR_BYTES
from veen_overlays.fold.event import Message
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.schema.record import Record


def service(n: int = 1, name: str = "shop", **values: Any) -> disc.ServiceAdvertise:
    given = {
        "methods": ("pay",),
        "stream_ids": (StreamId(bytes(32)),),
        "regions": ("eu",),
        "required_caps": (),
        "tags": (),
        "ttl_sec": 1_000,
        **values,
    }
    return disc.ServiceAdvertise(
        service_id=disc.ServiceId(bytes([n]) * 32), name=name, overlay_id=disc.OverlayId(bytes(32)), **given
    )


def hub(key: SigningKey, hub_id: HubId, **values: Any) -> disc.HubAdvertise:
    given = {"region": "eu", "tags": (), "overlays": (), "endpoints": (), "ttl_sec": 1_000, **values}
    return disc.HubAdvertise(
        hub_id=hub_id, hub_pk=HubPk(key.public), profile_id=ProfileId(bytes(32)), version="1", **given
    )


def directory(log: list[Message]) -> Directory:
    return Directory(DISCOVERY.fold(log).inner)


def ask(kind: str, filter_: Any = None, limit: int | None = None, offset: int | None = None) -> disc.Query:
    return disc.Query(kind=kind, filter=filter_ or {}, limit=limit, offset=offset)


def names(found: Directory, query: disc.Query, now: int = 100) -> list[str]:
    return [each["name"] for each in asked.answer(found, query, now).results]


def statuses(log: list[Message]) -> list[tuple[str, str, int]]:
    return [(each.status, each.why, each.records) for each in listing(DISCOVERY.fold(log).inner)]


# --- the fold and the queries, against a plain interpreter


@settings(max_examples=150)
@given(log=logs, data=st.data())
def test_every_query_has_the_result_of_the_plain_interpreter(log: list[Message], data: st.DataObject) -> None:
    plain, found, summary = Plain(log), directory(log), DISCOVERY.fold(log)
    assert summary.undecodable == plain.broken
    for kind, form in asked.FILTERS.items():
        drawn, now = data.draw(filters[kind]), data.draw(st.integers(0, 150))
        fields = [field.name for field in dataclasses.fields(form)]
        wanted = {name: drawn[name] for name in fields if name in drawn}  # in the order of the document (B2)
        result = asked.answer(found, ask(kind, wanted), now)
        assert list(result.results) == plain.query(kind, wanted, now)
        assert not result.more


@settings(max_examples=60)
@given(log=logs, cut=st.integers(0, 30), now=st.integers(0, 150))
def test_an_updated_directory_answers_as_a_new_one(log: list[Message], cut: int, now: int) -> None:
    grown = directory(log[:cut])
    grown.update(DISCOVERY.fold(log).inner)
    for kind in disc.KINDS:
        assert asked.answer(grown, ask(kind), now) == asked.answer(directory(log), ask(kind), now)


@settings(max_examples=60)
@given(log=logs)
def test_every_readable_record_is_in_force_superseded_or_counted_as_rejected(log: list[Message]) -> None:
    counted = sum(each.records for each in listing(DISCOVERY.fold(log).inner))
    assert counted == sum(disc.described(record) is not None for _, record in Plain(log).said)


@settings(max_examples=40)
@given(log=logs, limit=st.integers(1, 3))
def test_pages_are_the_whole_result_in_parts(log: list[Message], limit: int) -> None:
    found = directory(log)
    for kind in disc.KINDS:
        whole, parts, more = asked.answer(found, ask(kind), 40).results, list[Any](), True
        while more:
            part = asked.answer(found, ask(kind, limit=limit, offset=len(parts)), 40)
            parts += part.results
            more = part.more
        assert parts == list(whole)


@pytest.mark.parametrize("shape", DISCOVERY.schemas, ids=lambda shape: shape.NAME)
@given(data=st.data())
def test_a_malformed_record_of_any_schema_is_counted_and_changes_nothing(
    shape: type[Record], data: st.DataObject
) -> None:
    good = [said(1, service(), KEYS[3]), said(2, hub(KEYS[0], FIRST[0].hub_id), KEYS[0])]
    body = data.draw(st.binary(max_size=30) | st.just(cbor.encode({"hub_id": b"", "x": 1})))
    broken = Message(3, bytes(32), bytes(shape.SCHEMA), body, None, bytes(KEYS[4].public), 30)
    summary = DISCOVERY.fold([*good, broken])
    assert (summary.events, summary.undecodable) == (2, 1)
    assert DISCOVERY.state_bytes(summary) == DISCOVERY.state_bytes(DISCOVERY.fold(good))


# --- records


@pytest.mark.parametrize(
    ("strategy", "keys"),
    [
        (hubs, "hub_id hub_pk profile_id region tags endpoints overlays ttl_sec version expires_at"),
        (overlays, "overlay_id name version schemas docs_url tags ttl_sec expires_at"),
        (
            services,
            "service_id name overlay_id methods stream_ids regions required_caps auth_policy operator tags "
            "ttl_sec expires_at",
        ),
    ],
    ids=["hub", "overlay", "service"],
)
@given(data=st.data())
def test_keys_are_in_the_documents_order_and_absent_optionals_are_left_out(
    strategy: Any, keys: str, data: st.DataObject
) -> None:
    record = data.draw(strategy)
    item: Any = cbor.decode(record.encode())
    found = list(item)
    assert found == [key for key in keys.split() if getattr(record, key) is not None]


def test_details_that_nest_too_deep_are_refused() -> None:
    deep: Any = 0
    for _ in range(20):
        deep = [deep]
    record = service(auth_policy=disc.AuthPolicy(mode="other", details=deep))
    assert record.broken_rule() is not None


# --- who may publish


def test_a_service_belongs_to_the_publisher_that_advertised_it_first() -> None:
    log = [
        said(1, service(name="mine"), KEYS[3]),
        said(2, service(name="theirs"), KEYS[4]),
        said(3, disc.ServiceRetire(service_id=service().service_id), KEYS[4]),
    ]
    assert names(directory(log), ask("service")) == ["mine"]
    assert statuses(log) == [
        ("advertised", "", 1),
        ("rejected", "another publisher advertised the id first and has not named the signer", 2),
    ]


def test_a_retirement_before_any_advertisement_claims_nothing() -> None:
    log = [
        said(1, disc.ServiceRetire(service_id=service().service_id), KEYS[4]),
        said(2, service(name="mine"), KEYS[3]),
    ]
    assert names(directory(log), ask("service")) == ["mine"]


def test_a_named_publisher_may_replace_the_descriptor_and_may_name_others() -> None:
    def named(*keys: SigningKey) -> disc.Publishers:
        publishers = tuple(sorted(ClientId(key.public) for key in keys))
        return disc.Publishers(
            kind="service", id=disc.DescribedId(service().service_id), publishers=publishers
        )

    log = [
        said(1, service(name="a"), KEYS[3]),
        said(2, named(KEYS[4]), KEYS[3]),
        said(3, named(KEYS[0]), KEYS[4]),
    ]
    log.append(said(4, service(name="b"), KEYS[0]))
    assert names(directory(log), ask("service")) == ["b"]
    log.append(said(5, named(), KEYS[3]))
    assert names(directory(log), ask("service")) == ["a"], "a later list replaces the earlier one"


def test_a_publisher_whose_client_id_changes_stays_the_publisher_if_its_identity_key_links_them() -> None:
    person, first, second = KEYS[0], KEYS[3], KEYS[4]
    log = [
        said(1, sign_continuity(person, ClientId(first.public)), first),
        said(2, service(name="a"), first),
        said(3, service(name="b"), second),
    ]
    assert names(directory(log), ask("service")) == ["a"]
    grown = directory(log)
    log.append(said(4, sign_continuity(person, ClientId(second.public)), second))
    assert names(directory(log), ask("service")) == ["b"]
    grown.update(DISCOVERY.fold(log).inner)
    assert names(grown, ask("service")) == ["b"]


def test_a_link_that_the_client_id_has_not_signed_itself_links_nothing() -> None:
    person, thief, victim = KEYS[0], KEYS[3], KEYS[4]
    log = [
        said(1, service(name="victim's"), victim),
        said(2, sign_continuity(thief, ClientId(victim.public)), thief),
        said(3, service(name="thief's"), thief),
        said(4, sign_continuity(person, ClientId(thief.public)), thief),
    ]
    assert names(directory(log), ask("service")) == ["victim's"]


def test_a_hub_descriptor_counts_only_if_a_key_of_the_hub_signed_it() -> None:
    own, other = hub(KEYS[0], FIRST[0].hub_id, tags=("own",)), hub(KEYS[1], FIRST[0].hub_id, tags=("fake",))
    log = [said(1, other, KEYS[1]), said(2, own, KEYS[0]), said(3, other, KEYS[4])]
    (found,) = asked.answer(directory(log), ask("hub"), 100).results
    assert found["tags"] == ["own"]
    assert [each[0] for each in statuses(log)] == ["advertised", "rejected", "rejected"]


def test_a_hub_with_a_rotated_key_counts_once_its_identity_is_published() -> None:
    old, new = KEYS[1], KEYS[2]
    log = [said(1, hub(new, FIRST[1].hub_id), new, ROTATED_AT + 5)]
    assert statuses(log)[0][0] == "rejected"
    log.append(said(2, IDENTITIES[2], KEYS[4], ROTATED_AT + 6))
    assert statuses(log)[0][0] == "advertised", "the identity proves itself, whoever sends it"
    late = [said(1, IDENTITIES[2], new), said(2, hub(old, FIRST[1].hub_id), old, ROTATED_AT + 10)]
    assert statuses(late)[0][0] == "rejected", "the old key has ended"


def test_an_identity_that_contradicts_the_published_one_is_ignored() -> None:
    forked, thief = IDENTITIES[3], KEYS[3]
    log = [
        said(1, IDENTITIES[2], KEYS[2]),
        said(2, forked, thief),
        said(3, hub(thief, FIRST[1].hub_id), thief, 60),
    ]
    assert statuses(log)[0][0] == "rejected"


def test_a_message_whose_signer_is_unknown_claims_nothing() -> None:
    log = [said(1, service(name="a"), KEYS[3])._replace(client_id=None), said(2, service(name="b"), KEYS[4])]
    assert names(directory(log), ask("service")) == ["b"]


def test_a_descriptor_that_is_too_large_is_shown_as_rejected() -> None:
    log = [said(1, service(name="x" * MAX_DESCRIPTOR_BYTES), KEYS[3])]
    assert statuses(log) == [("rejected", "the descriptor is larger than 65536 bytes", 1)]


# --- time


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({"ttl_sec": 30}, 40),
        ({"ttl_sec": 30, "expires_at": UnixTime(17)}, 17),
        ({"ttl_sec": 2**64 - 1}, 2**64 - 1),
    ],
    ids=["ttl", "expires_at", "a ttl beyond the end of time"],
)
def test_a_descriptor_is_listed_before_its_end_and_not_at_it(values: dict[str, Any], end: int) -> None:
    found = directory([said(1, service(**values), KEYS[3], 10)])
    assert names(found, ask("service"), end - 1) == ["shop"]
    assert names(found, ask("service"), end) == []


def test_a_retired_descriptor_is_not_listed_until_it_is_advertised_again() -> None:
    log = [said(1, service(), KEYS[3]), said(2, disc.ServiceRetire(service_id=service().service_id), KEYS[3])]
    assert names(directory(log), ask("service")) == []
    assert names(directory([*log, said(3, service(name="again"), KEYS[3])]), ask("service")) == ["again"]


# --- queries


def test_two_readers_of_one_state_answer_with_the_same_bytes() -> None:
    log = [said(n, service(n, name=f"s{n % 3}"), KEYS[3]) for n in range(1, 9)]
    summary = DISCOVERY.fold(log)
    again = DISCOVERY.load(DISCOVERY.encode(summary))
    one, other = Directory(summary.inner), Directory(again.inner)
    assert (
        asked.answer(one, ask("service"), 100).encode() == asked.answer(other, ask("service"), 100).encode()
    )


@pytest.mark.parametrize(
    ("query", "code", "detail"),
    [
        (ask("hubs"), "disc.kind", "the kinds are hub, overlay, service"),
        (ask("hub", {"method": "pay"}), "disc.filter", "filter of kind hub"),
        (ask("service", {"name": "x"}), "disc.filter", "filter of kind service"),
        (ask("service", {"region": 7}), "disc.filter", "region"),
        (ask("service", {"region": "eu", "method": "pay"}), "disc.filter", "order"),
        (ask("overlay", ["x"]), "disc.filter", "want a map"),
    ],
    ids=["kind", "key of another kind", "unknown key", "type", "order of keys", "no map"],
)
def test_a_query_that_cannot_be_answered_says_why(query: disc.Query, code: str, detail: str) -> None:
    found = asked.answer(Directory(), query, 0)
    assert not found.ok
    assert found.error is not None
    assert found.error.code == code
    assert detail in (found.error.detail or "")
    assert disc.QueryResult.decode(found.encode()) == found


def test_a_page_has_at_most_lmax_results_and_half_a_message_of_bytes() -> None:
    log = [said(n + 1, _numbered(n), KEYS[3], 10) for n in range(asked.MAX_RESULTS + 1)]
    found = asked.answer(directory(log), ask("service", limit=1_000), 100)
    assert (len(found.results), found.more) == (asked.MAX_RESULTS, True)
    org = disc.Operator(org="x" * 60_000)
    large = [said(n + 1, _numbered(n, operator=org), KEYS[3], 10) for n in range(20)]
    page = asked.answer(directory(large), ask("service"), 100)
    assert (len(page.results), page.more) == (8, True)


def _numbered(n: int, **values: Any) -> disc.ServiceAdvertise:
    plain = service(name=f"s{n:03}", **values)
    fields = {f.name: getattr(plain, f.name) for f in plain.codec.fields}
    return disc.ServiceAdvertise(**{**fields, "service_id": disc.ServiceId(n.to_bytes(32, "big"))})


def test_a_limit_of_zero_asks_whether_there_is_anything() -> None:
    found = asked.answer(directory([said(1, service(), KEYS[3])]), ask("service", limit=0), 100)
    assert (found.results, found.more) == ((), True)


def test_no_descriptor_changes_the_schemas_of_rpc_that_a_client_knows() -> None:
    rpc = overlay_id("rpc")
    own = replace(service(), overlay_id=rpc)
    forged = disc.OverlayAdvertise(overlay_id=rpc, name="rpc", version="1", schemas=(), tags=(), ttl_sec=1)
    assert [each.accepted for each in choose_services([(own, bytes(32))], [forged])] == [True]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://h", "http"),
        ("https://h", "https"),
        ("h3://h", "quic"),
        ("nats://h/p", "nats"),
        ("tls://h/p", "nats"),
    ],
)
def test_an_endpoint_has_the_kind_of_its_road(url: str, kind: str) -> None:
    assert hub_descriptor._kind_of(url) == kind
