"""The SQL functions verify, open, decode and fold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.kv import KV, Delete, Put
from veen_spark.functions import sql
from veen_spark.functions.reader_keys import ReaderKeys

from .frames import entries, frame, in_one_process, row_of
from .logs import Hub, hub_pk, reader_key

RECORDS = [Put(key=b"a", value=b"1"), Put(key=b"b", value=b"2"), Delete(key=b"a")]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    hub = Hub(tmp_path_factory.mktemp("sql") / "hub")
    hub.send_records("orders", RECORDS)
    hub.send("orders", bodies=[b"no overlay's"])
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def query(spark: SparkSession, hub: Hub) -> Iterator[SparkSession]:
    """A session with the table ``log`` of four valid entries, and the table ``bad`` with damaged ones too."""
    sql.register(spark, ReaderKeys.broadcast(spark, [reader_key("orders")]))
    rows = [row_of(entry, hub.hub_id) for entry in entries(hub, "orders")]
    frame(spark, rows).createOrReplaceTempView("log")
    bad_msg = bytearray(rows[0]["msg"])
    bad_msg[-1] ^= 1
    bad_receipt = bytearray(rows[0]["receipt"])
    bad_receipt[-1] ^= 1
    damaged = {**rows[0], "msg": bytes(bad_msg), "receipt": bytes(bad_receipt)}
    garbage = {**rows[0], "msg": b"garbage", "receipt": b"garbage"}
    frame(spark, [*rows, damaged, garbage, {**rows[1], "msg": None}], 1).createOrReplaceTempView("bad")
    yield spark
    sql.register(spark)


def column(spark: SparkSession, text: str) -> list[object]:
    return [row[0] for row in spark.sql(text).collect()]


def test_messages_and_receipts_verify_and_a_flipped_bit_does_not(query: SparkSession) -> None:
    assert column(query, "select veen_verify_msg(msg) from bad") == [True] * 4 + [False, False, None]
    key = hub_pk("hub/0").hex()
    checked = f"select veen_verify_receipt(receipt, unhex('{key}')) from bad"
    assert column(query, checked) == [True] * 4 + [False, False, True]
    other = f"select veen_verify_receipt(receipt, unhex('{hub_pk('hub/1').hex()}')) from log"
    assert column(query, other) == [False] * 4


def test_a_hubs_identity_stands_for_the_key_active_at_hub_ts(query: SparkSession, hub: Hub) -> None:
    identity = (Path(hub.root) / "hub-identity.cbor").read_bytes().hex()
    checked = f"select veen_verify_receipt(receipt, unhex('{identity}')) from bad"
    assert column(query, checked) == [True] * 4 + [False, False, True]
    wrong = f"select veen_verify_receipt(receipt, unhex('{identity[:-2]}00')) from log"
    assert column(query, wrong) == [False] * 4


def test_the_leaf_hash_is_that_of_the_receipt(query: SparkSession) -> None:
    assert column(query, "select veen_leaf_hash(msg) = leaf_hash from log") == [True] * 4
    garbage = "msg = cast('garbage' as binary)"
    assert column(query, f"select veen_leaf_hash(msg) is null from bad where {garbage}") == [True]


def test_messages_open_and_decode_to_json(query: SparkSession) -> None:
    text = """
        select m.opened, m.schema_name, veen_schema_name(m.schema), veen_decode(m.schema, m.body)
        from (select veen_open(msg) as m, stream_seq from log) order by stream_seq"""
    rows = [tuple(row) for row in query.sql(text).collect()]
    assert rows[0] == (True, "kv.put.v1", "kv.put.v1", RECORDS[0].to_json())
    assert rows[2] == (True, "kv.delete.v1", "kv.delete.v1", RECORDS[2].to_json())
    assert rows[3] == (True, None, None, None)
    unopened = "select m.opened, m.why_not is not null from (select veen_open(msg) as m from bad)"
    assert [tuple(row) for row in query.sql(unopened).collect()][-2:] == [(False, True)] * 2


def test_an_aggregate_folds_a_label_to_the_state_of_one_process(query: SparkSession, hub: Hub) -> None:
    text = "select veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg)) from log group by label"
    found = json.loads(str(column(query, text)[0]))
    whole = in_one_process(KV, hub, "orders", reader_key("orders"))
    assert found["state_hash"] == KV.state_hash(whole).hex()
    assert (found["from_seq"], found["upto_seq"], found["events"], found["foreign"]) == (1, 4, 3, 1)
    assert found["state"] == {b"b".hex(): b"2".hex()}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("log where stream_seq != 2", "entries 2 to 2 are missing"),
        ("log where stream_seq > 2", "entries 1 to 2 are missing"),
        ("(select * from log union all select * from log where stream_seq = 4)", "entry 4 occurs twice"),
        ("(select stream_seq, leaf_hash, nullif(msg, msg) as msg from log)", "entry 1 has no message"),
    ],
    ids=["gap", "no beginning", "duplicate", "pruned"],
)
def test_an_aggregate_refuses_what_fold_refuses(rows: str, reason: str, query: SparkSession) -> None:
    text = f"select veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg)) from {rows}"
    with pytest.raises(PythonException, match=f"veen_fold_kv_map: {reason}"):
        column(query, text)


def test_every_overlay_has_an_aggregate_unless_it_needs_signer_or_time(
    query: SparkSession,
) -> None:
    known = {function.name for function in query.catalog.listFunctions(pattern="veen_fold_*")}
    assert known == {
        sql.aggregate_name(name)
        for name, each in OVERLAYS.items()
        if not (each.reads_signer or each.reads_time)
    }


def test_null_is_null_and_opens_to_nothing(query: SparkSession) -> None:
    text = """
        select veen_verify_msg(nothing), veen_leaf_hash(nothing), veen_schema_name(nothing),
            veen_verify_receipt(nothing, nothing), veen_verify_receipt(receipt, nothing),
            veen_verify_receipt(nothing, leaf_hash), veen_decode(nothing, nothing),
            veen_decode(leaf_hash, nothing), veen_decode(nothing, msg), veen_open(nothing)
        from (select *, cast(null as binary) as nothing from log where stream_seq = 1)"""
    (row,) = query.sql(text).collect()
    assert list(row)[:-1] == [None] * 9
    assert (row[-1].opened, row[-1].body) == (False, None)
    assert row[-1].why_not == "there is no entry in this row"


def test_an_aggregate_refuses_nulls(query: SparkSession) -> None:
    nothing = "cast(null as struct<opened: boolean, schema: binary, body: binary, parent_id: binary>)"
    with pytest.raises(PythonException, match="entry 1 has no message"):
        column(query, f"select veen_fold_kv_map(stream_seq, leaf_hash, {nothing}) from log")
    for place in ("cast(null as long), leaf_hash", "stream_seq, cast(null as binary)"):
        with pytest.raises(PythonException, match="it is not a log entry"):
            column(query, f"select veen_fold_kv_map({place}, veen_open(msg)) from log")


def test_an_aggregate_counts_messages_that_do_not_open_as_foreign(query: SparkSession) -> None:
    fields = "'opened', false, 'why_not', 'no key', 'schema', x'00', 'body', x'00', 'parent_id', x'00'"
    sealed = f"named_struct({fields})"
    (found,) = column(query, f"select veen_fold_kv_map(stream_seq, leaf_hash, {sealed}) from log")
    assert json.loads(str(found))["foreign"] == 4


def test_without_keys_nothing_opens(query: SparkSession) -> None:
    session = query.newSession()
    sql.register(session)
    wire = f"unhex('{bytes(query.table('log').first()['msg']).hex()}')"  # type: ignore[index]
    row = session.sql(f"select veen_open({wire}) as m").collect()[0]
    assert (row.m.opened, row.m.why_not) == (False, "no reader key was given")


@pytest.mark.parametrize(
    "asked",
    [
        "veen_schema_name(hex(leaf_hash))",
        "veen_decode(hex(leaf_hash), msg)",
        "veen_verify_msg(stream_seq)",
        "veen_leaf_hash(msg, msg)",
        "veen_verify_receipt(receipt)",
        "veen_open('text')",
        "veen_fold_kv_map(stream_seq, leaf_hash, msg)",
        "veen_fold_kv_map(hex(msg), leaf_hash, veen_open(msg))",
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_is_wanted(asked: str, query: SparkSession) -> None:
    """Hex instead of bytes would be an unknown schema and an undecodable body."""
    name = asked.partition("(")[0]
    with pytest.raises(PythonException, match=rf"{name}\(.*\): found .*; convert hex to binary with unhex"):
        query.sql(f"select {asked} from log").collect()
