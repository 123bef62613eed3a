"""Opening on the executors keeps every row, and the keys appear nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from veen_core.errors import VeenError
from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import Secrets
from veen_overlays.kv import Put
from veen_spark.errors import SparkSetupError
from veen_spark.functions.open import open_messages
from veen_spark.functions.reader_keys import ReaderKeys, keys_in

from .frames import entries, frame, frame_of, row_of
from .logs import Hub, reader_key

PUT = Put(key=b"k", value=b"v")


@pytest.fixture
def mixed(hub: Hub) -> Hub:
    """A hub with two streams and keys, a cap token, and a message of an unknown schema."""
    hub.send_records("orders", [PUT, PUT])
    hub.send("payments", bodies=[b"unknown to overlays"])
    hub.authorize()
    return hub


def test_rows_get_schema_header_and_body_and_none_is_dropped(spark: SparkSession, mixed: Hub) -> None:
    rows = [row_of(e, mixed.hub_id) for n in ("orders", "payments", "control") for e in entries(mixed, n)]
    damaged = {**rows[0], "msg": rows[0]["msg"][:-3]}
    pruned = {**rows[1], "msg": None, "kind": "pruned"}
    keys = ReaderKeys.broadcast(spark, [reader_key("payments"), reader_key("orders")])
    shown = open_messages(frame(spark, [*rows, damaged, pruned], 1), keys)
    assert shown.columns[: len(rows[0]) - 1][0] == "label"
    found = [tuple(r) for r in shown.select("opened", "schema_name", "body", "parent_id").collect()]
    assert found[:3] == [
        (True, "kv.put.v1", PUT.encode(), None),
        (True, "kv.put.v1", PUT.encode(), None),
        (True, None, b"unknown to overlays", None),
    ]
    assert found[3:] == [(False, None, None, None)] * 3
    why = [row.why_not for row in shown.select("why_not").collect()]
    assert why[:3] == [None] * 3
    assert "cap token" in why[3]
    assert "MSG" in why[4]
    assert "retention" in why[5]


def test_a_reader_without_the_key_keeps_the_row_and_learns_nothing(spark: SparkSession, mixed: Hub) -> None:
    shown = open_messages(
        frame_of(spark, mixed, "orders"), ReaderKeys.broadcast(spark, [reader_key("nobody")])
    )
    assert [(r.opened, r.body, r.schema) for r in shown.collect()] == [(False, None, None)] * 2


def test_copies_name_their_parent(spark: SparkSession, hub: Hub) -> None:
    first = hub.send_records("orders", [PUT])[0]
    hub.send_records("orders", [PUT], parents=[first.leaf_hash])
    shown = open_messages(frame_of(spark, hub, "orders"), ReaderKeys.broadcast(spark, [reader_key("orders")]))
    assert [r.parent_id for r in shown.orderBy("stream_seq").collect()] == [None, bytes(first.leaf_hash)]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "reader.key"
    file.write_text(bytes(reader_key("orders").secret).hex())
    file.chmod(0o600)
    return file


def test_keys_come_from_files_that_lie_on_the_executors(
    spark: SparkSession, mixed: Hub, key_file: Path
) -> None:
    shown = open_messages(frame_of(spark, mixed, "orders"), ReaderKeys.from_files(key_file))
    assert [row.opened for row in shown.collect()] == [True, True]


def test_a_file_may_be_an_identitys_secrets_or_its_folder(tmp_path: Path) -> None:
    secret = DhSecret(bytes(reader_key("orders").secret))
    secrets = Secrets(id_sign=SigningSeed(b"\x01" * 32), id_dh=secret, created_at=UnixTime(1))
    (tmp_path / "secrets.cbor").write_bytes(secrets.encode())
    (tmp_path / "secrets.cbor").chmod(0o600)
    for named in (tmp_path, tmp_path / "secrets.cbor"):
        assert [key.public for key in keys_in(str(named))] == [reader_key("orders").public]


def test_a_missing_shared_or_invalid_key_file_is_refused_with_the_next_step(
    spark: SparkSession, mixed: Hub, tmp_path: Path
) -> None:
    loose, wrong = tmp_path / "loose", tmp_path / "wrong"
    loose.write_bytes(bytes(32))
    loose.chmod(0o644)
    wrong.write_bytes(b"three")
    wrong.chmod(0o600)
    for file, action in ((tmp_path / "none", "every executor"), (loose, "chmod 600"), (wrong, "veen keygen")):
        with pytest.raises(SparkSetupError, match=action):
            ReaderKeys.from_files(file).get()
    with pytest.raises(PythonException, match="chmod 600"):
        open_messages(frame_of(spark, mixed, "orders"), ReaderKeys.from_files(loose)).collect()
    with pytest.raises(VeenError, match="no reader key was given"):
        ReaderKeys.from_files()


LEAK = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.daemons import BRIEF
from tests.frames import frame_of
from tests.logs import Hub, reader_key
from veen_spark import start
from veen_spark.fold.folding import fold
from veen_spark.functions.open import open_messages
from veen_spark.functions.reader_keys import ReaderKeys

config = {"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": BRIEF}
spark = start("local[1]", verbose=True, config=config)
root = Path(sys.argv[1])
hub = Hub(root / "hub")
hub.send("orders", 3)
keys = ReaderKeys.broadcast(spark, [reader_key("orders")])
shown = open_messages(frame_of(spark, hub, "orders"), keys)
shown.explain(extended=True)
print(keys, vars(type(keys)).keys(), shown.schema.simpleString())
shown.write.parquet(str(root / "sink"))
fold(frame_of(spark, hub, "orders"), "kv.map", keys).explain(extended=True)
try:
    open_messages(frame_of(spark, hub, "orders").selectExpr("label", "msg", "1 as kind"), keys).collect()
except Exception as error:
    print(error)
hub.close()
spark.stop()
"""


def test_a_broadcast_key_is_in_no_plan_no_log_and_no_sink(tmp_path: Path) -> None:
    """Spark's own log is on, and a task fails, which logs even more."""
    package = Path(__file__).parents[1]
    said = subprocess.run(
        [sys.executable, "-c", LEAK, tmp_path],
        capture_output=True,
        timeout=240,
        check=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert b"MapInArrow" in said.stdout
    assert b"INFO" in said.stderr  # there is a log to look at
    secret = bytes(reader_key("orders").secret)
    sink = [file.read_bytes() for file in (tmp_path / "sink").rglob("*") if file.is_file()]
    assert sum(map(len, sink)) > 1_000
    for text in (said.stdout, said.stderr, *sink):
        for form in (secret, secret.hex().encode(), repr(secret).encode()[2:-1], str(list(secret)).encode()):
            assert form not in text
