"""Every example in the help of ``veen record`` and ``veen query`` runs, against a hub and a query service."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_overlays.live.query_service.principals import hash_of_token

from .query_world import AUDITOR
from .query_world import World as QueryWorld
from .running import SCRIPTS, ending_hubs
from .test_examples import World, examples_of, parse

EXAMPLES = examples_of(modules=("veen_cli.record.", "veen_cli.query."))
INIT = [line for line in EXAMPLES if line.startswith("veen record init")]

ONLY_PARSED = {
    "veen record checkpoint --config admin/recorder.yaml --out checkpoints --every 5m --every-events 10000": (
        "runs until it is stopped"
    ),
    "veen query serve": "runs in the foreground",
    "veen query serve --config /etc/veen/query.yaml --listen 127.0.0.1:8085": "runs in the foreground",
    "veen query compare z1.veenq --hub URL --trust HUB_ID --client auditor --origin z1-hub.cbor "
    "--held-in record/app/http=import/z1/app-http": "needs two zones; `veen selftest query` has them",
}
"""Examples that are not run, and why."""

BEFORE = {
    "veen record validate checkpoint.veenrc --config admin/recorder.yaml --offline --json": (
        "cp checkpoints/*.veenrc checkpoint.veenrc"
    ),
    "veen record safe-window new.veenrc --after old.veenrc --config admin/recorder.yaml --json": (
        "cp checkpoint.veenrc old.veenrc && veen record emit http.request --subject user:123 "
        "--payload '{\"status\": 401}' --config shop/recorder.yaml && veen record checkpoint "
        "--config admin/recorder.yaml --out later && cp later/*.veenrc new.veenrc"
    ),
    "veen record replay --out replay.jsonl --resume --config admin/recorder.yaml": (
        "head -n 1 replay.jsonl > cut && mv cut replay.jsonl"
    ),
    "veen query verify result.veenq --trust HUB_ID --receipt mine.receipt": (
        "veen receipt get 1 --stream record/app/http --out mine.receipt"
    ),
    "veen query compare z1.veenq z2.veenq": (
        "veen query run -s record/app/http --evidence full --out z1.veenq && cp z1.veenq z2.veenq"
    ),
}
"""Commands that prepare the world for one example."""

INSTEAD = {
    "http://127.0.0.1:8080": "URL",
    "https://query.example": "SERVICE",
    "q-3f…": "QUERY_ID",
    "tail -f ": "cat ",
}

ALL_STREAMS = (
    "--stream record/app/orders",
    "--stream record/app/orders --stream record/security/auth --stream record/app/http",
)
PROFILE = """\
profile: shop
realm: shop
streams:
  record/security/auth: [login, logout]
  record/app/orders: [order.placed]
  record/app/shop: [shop.opened]
  record/app/http: [http.request]
"""
EVENTS = (
    {"event_type": "order.placed", "subject_id": "user:ann", "payload": {"order": 17}},
    {"event_type": "http.request", "subject_id": "user:123", "payload": {"status": 401}},
    {"event_type": "http.request", "subject_id": "user:bob", "payload": {"status": 200}},
)
DESCRIPTOR = {
    "scope": ["record/app/http"],
    "projection": ["*"],
    "filter": {},
    "evidence": {"mode": "none"},
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}")
    Path("recorder.yaml").write_text(PROFILE)
    Path("events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in EVENTS))
    Path("auditor.token").write_text(AUDITOR)
    Path("auditor.token").chmod(0o600)
    descriptor = {
        "scope": ["record/app/http"],
        "projection": ["*"],
        "filter": {},
        "evidence": {"mode": "none"},
    }
    Path("descriptor.json").write_text(json.dumps(descriptor))
    made = World(tmp_path, {"HERE": str(tmp_path)}, INSTEAD)
    with ending_hubs(tmp_path):
        made.prepare("veen keygen --out operator --no-passphrase", {})
        made.prepare("veen hub init --data-dir hub --admin operator --json", {"HUB_ID": "hub_id"})
        made.prepare("veen hub start --data-dir hub --port 0 --detach --json", {"URL": "url"})
        monkeypatch.setenv("VEEN_HUB", made.names["URL"])
        monkeypatch.setenv("VEEN_TRUST", made.names["HUB_ID"])
        for line in INIT:
            made.prepare(f"{line.replace(*ALL_STREAMS)} --no-passphrase", {})
        monkeypatch.setenv("VEEN_CLIENT", str(tmp_path / "admin/identity"))
        made.prepare("cp -r admin/identity auditor", {})
        made.prepare("veen record emit --batch --file events.jsonl --config shop/recorder.yaml", {})
        queries = QueryWorld(tmp_path, made.names["URL"], made.names["HUB_ID"])
        service = queries.serve(_service_config(made))
        made.names["SERVICE"] = service.url
        try:
            ask = "veen query run descriptor.json --service SERVICE --token-file auditor.token --json"
            made.names["QUERY_ID"] = made.run(ask).json["digest"]["query_id"]
            yield made
        finally:
            service.stop()


def _service_config(world: World) -> Path:
    """Make an identity for the service, which may record queries, and its query.yaml."""
    world.prepare("veen keygen --out query --no-passphrase", {})
    streams = " ".join(f"--stream record/query/{name}" for name in ("requests", "results", "audit/access"))
    world.prepare(f"veen cap issue --issuer operator --subject query {streams} --out query.cap", {})
    path = world.root / "query.yaml"
    settings = {
        "hub": {"url": world.names["URL"], "trust": world.names["HUB_ID"]},
        "client": "query",
        "tokens": ["query.cap"],
        "readers": ["admin/identity"],
        "streams": ["record/app/http"],
        "listen": {"port": 0},
        "probes": {"port": 0},
        "principals": [
            {
                "name": "auditor",
                "identity": "ab" * 32,
                "tokens": [hash_of_token(AUDITOR).hex()],
                "streams": ["record/app/*"],
            }
        ],
    }
    path.write_text(json.dumps(settings))
    return path


def test_every_example_of_the_recorder_and_of_queries_runs(world: World) -> None:
    wrong = []
    for line, ctx in EXAMPLES.items():
        if line in INIT:
            continue  # ran when the world was made
        if line in ONLY_PARSED:
            Path("z1.veenq").touch()
            Path("z1-hub.cbor").touch()
            parse(world.told(line).replace("/etc/veen/", ""), ctx)
            Path("z1.veenq").unlink()
            continue
        if line == "veen query token --out auditor.token":
            Path("auditor.token").unlink()
        for step in BEFORE.get(line, "").split(" && "):  # one by one: `veen` runs in this process then
            world.prepare(step, {})
        done = world.run(line)
        if done.code != 0:
            wrong.append(f"{line}\n    {done.code}: {done.err}{done.out}")
    assert not wrong, "\n".join(wrong)


def test_the_tables_name_existing_examples_only() -> None:
    assert {*ONLY_PARSED, *BEFORE} <= EXAMPLES.keys()
    assert [shown for shown in INSTEAD if not any(shown in line for line in EXAMPLES)] == []
    assert len(INIT) == 2
