"""Two zones: a query in Z1; events, descriptor and digest bridged; executed again in Z2 (query-api §9)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.query.site import REQUESTS, RESULTS, STREAM, QuerySite, require_extra
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

SENT: Final = (STREAM, REQUESTS, RESULTS)


def _zones(context: CheckContext, mode: str) -> None:
    require_extra()
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-query-") as folder,
        context.own_hub(HUB_LOG).running() as source,
        context.own_hub(HUB_LOG).running() as target,
    ):
        site = QuerySite(Path(folder), source)
        site.emit(range(20))
        try:
            site.start()
            name = site.completed(query_id="crossing", projection=["*"])
            digest = site.ask(f"/api/query/result/{name}").json["result_digest"]
            file = site.file(name)
        finally:
            site.kill()
        _bridge(site, target, mode)
        found = _compared(site, target, mode)
        require_equal(found["agree"], True, f"the results of both zones ({found['differences']})")
        require_equal(found["digests"][0], digest, "the digest that was bridged")
        for field in ("query_id", "result_id", "row_count", "rows_hash", "evidence_hash"):
            require_equal(found["digests"][1][field], digest[field], f"{field} in Z2")
        require(file.exists(), "the result file is missing")


def _bridge(site: QuerySite, target: HttpHub, mode: str) -> None:
    """Export the three streams of Z1 and import them in Z2, with `veen bridge`."""
    for hub, name in ((site.hub, "admin1"), (target, "admin2")):
        assert hub.admin is not None  # the selftest started the hub
        site.write_identity(name, hub.admin)
    init = ("bridge", "init", "--no-passphrase", "--json")
    online = site.veen(
        *(*init, "--role", "bridge_online", "--out", "z1", "--hub", site.hub.url, "--issuer", "admin1"),
        *("--trust", site.hub_id.hex(), *(part for name in SENT for part in ("--stream", name))),
    )
    held = [f"import/z1/{name}" for name in SENT]
    site.veen(
        *(*init, "--role", "bridge_offline", "--out", "z2", "--hub", target.url, "--issuer", "admin2"),
        *("--trust", target.known.identity.hub_id.hex(), "--source", site.hub_id.hex()),
        *("--source-bridge", json.loads(online)["bridge_id"], "--map", "record/*=import/z1/record/*"),
        *(part for name in held for part in ("--stream", name)),
    )
    if mode == "reseal":
        path = site.root / "z2" / "bridge.yaml"
        with path.open("a", encoding="utf-8") as config:
            config.write("mode: reseal\nsource_readers: [../service]\nreaders: [../service]\n")
    site.veen("bridge", "export", "-c", "z1/bridge.yaml", "--out", "media", "--checkpoint-now", "-q")
    site.veen("bridge", "import", "-c", "z2/bridge.yaml", "-q", "media")


def _compared(site: QuerySite, target: HttpHub, mode: str) -> Any:
    """Execute the bridged query in Z2, with the keys of the auditor there, and compare the digests."""
    source = ("--hub", site.hub.url, "--trust", site.hub_id.hex())
    site.veen("hub", "keys", *source, "--out", "z1-hub.cbor", "-q")
    readers = ("--reader", "z2/identity") if mode == "wrap" else ()
    done = site.run(
        *("query", "compare", "--recorded", "crossing", "--json", "--origin", "z1-hub.cbor", *readers),
        *("--hub", target.url, "--trust", target.known.identity.hub_id.hex(), "--client", "service"),
        *(part for name in SENT for part in ("--held-in", f"{name}=import/z1/{name}")),
        *(("--resealed",) if mode == "reseal" else ()),
    )
    require(done.stdout, f"`veen query compare` printed no result: {done.stderr}")
    return json.loads(done.stdout)


def _wrapped(context: CheckContext) -> None:
    """A query executed again over wrapped events in another zone has the same digest."""
    _zones(context, "wrap")


def _resealed(context: CheckContext) -> None:
    """A query executed again over resealed events in another zone has the same digest."""
    _zones(context, "reseal")


CHECKS: Final = (
    Check("query.zones.wrap", "query-api 9.1, P11", _wrapped),
    Check("query.zones.reseal", "query-api 9.1, P11", _resealed),
)
