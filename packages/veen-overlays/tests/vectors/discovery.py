"""Make the vectors of discovery's records, or check the files.

    python packages/veen-overlays/tests/vectors/discovery.py            writes
    python packages/veen-overlays/tests/vectors/discovery.py --check    1 if anything differs

A file in ``discovery`` has the cases of one record: the body in hex with its JSON value, or with text of the
error that it causes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import cbor2
from vector_files import as_json, json_files, run

from veen_core.hub_identity import new_identity, rotate, sign_identity
from veen_core.ids import ClientId, HubId, HubPk, ProfileId, SchemaId, StreamId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.discovery import records as disc
from veen_overlays.schema.record import MAX_NESTING, Record

FOLDER: Final = Path(__file__).resolve().parent / "discovery"
AT = UnixTime(1_700_000_000)
FIRST, SECOND = (SigningKey(SigningSeed(bytes([n]) * 32)) for n in (1, 2))
BEFORE = new_identity(FIRST, AT)
ROTATED = rotate(BEFORE, FIRST, HubPk(SECOND.public), UnixTime(AT + 60), 10)
HUB, OVERLAY, SERVICE = HubId(b"\x11" * 32), disc.OverlayId(b"\x22" * 32), disc.ServiceId(b"\x33" * 32)
ANN, BOB = (ClientId(bytes([n]) * 32) for n in (0xA1, 0xB0))

GOOD: Final[dict[str, Record]] = {
    "disc.hub.advertise.v1 all": disc.HubAdvertise(
        hub_id=HUB,
        hub_pk=HubPk(FIRST.public),
        profile_id=ProfileId(b"\x44" * 32),
        region="eu-central",
        tags=("beta", "open"),
        endpoints=(
            disc.Endpoint(kind="https", url="https://hub.example"),
            disc.Endpoint(kind="quic", url="quic://hub.example:4433"),
        ),
        overlays=(OVERLAY,),
        ttl_sec=3_600,
        version="1.0.0",
        expires_at=AT,
    ),
    "disc.hub.advertise.v1 required": disc.HubAdvertise(
        hub_id=HUB,
        hub_pk=HubPk(FIRST.public),
        profile_id=ProfileId(b"\x44" * 32),
        region="",
        tags=(),
        endpoints=(),
        overlays=(),
        ttl_sec=0,
        version="",
    ),
    "disc.hub.retire.v1 all": disc.HubRetire(hub_id=HUB, reason="moved"),
    "disc.hub.retire.v1 required": disc.HubRetire(hub_id=HUB),
    "disc.overlay.advertise.v1 all": disc.OverlayAdvertise(
        overlay_id=OVERLAY,
        name="wallet",
        version="1",
        schemas=(SchemaId(b"\x55" * 32), SchemaId(b"\x54" * 32)),
        docs_url="https://wallet.example",
        tags=("money",),
        ttl_sec=86_400,
        expires_at=AT,
    ),
    "disc.overlay.advertise.v1 required": disc.OverlayAdvertise(
        overlay_id=OVERLAY, name="", version="", schemas=(), tags=(), ttl_sec=0
    ),
    "disc.overlay.retire.v1 all": disc.OverlayRetire(overlay_id=OVERLAY, reason="заменён"),
    "disc.overlay.retire.v1 required": disc.OverlayRetire(overlay_id=OVERLAY),
    "disc.service.advertise.v1 all": disc.ServiceAdvertise(
        service_id=SERVICE,
        name="shop.eu",
        overlay_id=OVERLAY,
        methods=("pay", "quote"),
        stream_ids=(StreamId(b"\x66" * 32),),
        regions=("eu", "us"),
        required_caps=("pay",),
        auth_policy=disc.AuthPolicy(mode="cap_token", details={"issuer": "shop", "scopes": [1, None]}),
        operator=disc.Operator(org="Shop", contact="ops@shop.example"),
        tags=("beta",),
        ttl_sec=600,
        expires_at=AT,
    ),
    "disc.service.advertise.v1 required": disc.ServiceAdvertise(
        service_id=SERVICE,
        name="shop",
        overlay_id=OVERLAY,
        methods=(),
        stream_ids=(),
        regions=(),
        required_caps=(),
        tags=(),
        ttl_sec=600,
    ),
    "disc.service.retire.v1 all": disc.ServiceRetire(service_id=SERVICE, reason="closed"),
    "disc.service.retire.v1 required": disc.ServiceRetire(service_id=SERVICE),
    "disc.publishers.v1 all": disc.Publishers(
        kind="service", id=disc.DescribedId(SERVICE), publishers=(ANN, BOB)
    ),
    "disc.publishers.v1 required": disc.Publishers(
        kind="overlay", id=disc.DescribedId(OVERLAY), publishers=()
    ),
    "disc.hub.identity.v1 all": disc.HubKeys(
        hub_id=ROTATED.hub_id, identity=ROTATED.encode(), sig=sign_identity(SECOND, ROTATED)
    ),
    "disc.hub.identity.v1 required": disc.HubKeys(
        hub_id=BEFORE.hub_id, identity=BEFORE.encode(), sig=sign_identity(FIRST, BEFORE)
    ),
    "disc.query.v1 all": disc.Query(
        kind="hub",
        filter={"region": "eu", "tags_any": ["open"], "overlay_id": bytes(OVERLAY)},
        limit=10,
        offset=20,
    ),
    "disc.query.v1 required": disc.Query(kind="service", filter={}),
    "disc.query.res.v1 all": disc.QueryResult(
        ok=False, results=(), more=False, error=disc.QueryError(code="disc.kind", detail="unknown")
    ),
    "disc.query.res.v1 required": disc.QueryResult(ok=True, results=({"name": "shop"},), more=True),
}
"""A record of each kind with all fields, and one with the required fields only."""
SHAPES: Final[dict[str, type[Record]]] = {each.NAME: type(each) for each in GOOD.values()}


def _nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


BAD: Final[dict[str, dict[str, tuple[dict[str, Any], str]]]] = {
    "disc.hub.advertise.v1": {
        "hub_pk short": ({"hub_pk": bytes(31)}, "hub_pk"),
        "region bytes": ({"region": b"eu"}, "region"),
        "endpoint without url": ({"endpoints": [{"kind": "https"}]}, "url"),
        "endpoint with unknown key": ({"endpoints": [{"kind": "a", "url": "b", "port": 1}]}, "unknown key"),
        "overlay id short": ({"overlays": [bytes(31)]}, "overlays"),
        "ttl_sec negative": ({"ttl_sec": -1}, "ttl_sec"),
        "version missing": ({"version": ...}, "version"),
        "expires_at null": ({"expires_at": None}, "expires_at"),
    },
    "disc.hub.retire.v1": {"reason null": ({"reason": None}, "reason"), "no id": ({"hub_id": ...}, "hub_id")},
    "disc.overlay.advertise.v1": {
        "schema id short": ({"schemas": [bytes(31)]}, "schemas"),
        "tag integer": ({"tags": ["a", 1]}, "tags"),
        "name missing": ({"name": ...}, "name"),
    },
    "disc.overlay.retire.v1": {"id short": ({"overlay_id": bytes(31)}, "overlay_id")},
    "disc.service.advertise.v1": {
        "unknown mode": ({"auth_policy": {"mode": "password"}}, "mode"),
        "details float": ({"auth_policy": {"mode": "none", "details": 1.5}}, "floats"),
        "details too deep": (
            {"auth_policy": {"mode": "none", "details": _nested(MAX_NESTING + 1)}},
            f"at most {MAX_NESTING}",
        ),
        "operator a text": ({"operator": "Shop"}, "operator"),
        "methods missing": ({"methods": ...}, "methods"),
        "stream id short": ({"stream_ids": [bytes(31)]}, "stream_ids"),
    },
    "disc.service.retire.v1": {"unknown key": ({"at": 1}, "unknown key")},
    "disc.publishers.v1": {
        "kind hub": ({"kind": "hub"}, "kind"),
        "unsorted": ({"publishers": [bytes(BOB), bytes(ANN)]}, "sorted and unique"),
        "one twice": ({"publishers": [bytes(ANN), bytes(ANN)]}, "sorted and unique"),
    },
    "disc.hub.identity.v1": {
        "of another hub": ({"hub_id": bytes(HUB)}, "its newest key has made sig"),
        "signed by the old key": (
            {"sig": bytes(sign_identity(FIRST, ROTATED))},
            "its newest key has made sig",
        ),
        "identity not CBOR": ({"identity": b"\xff"}, "its newest key has made sig"),
        "sig short": ({"sig": bytes(63)}, "sig"),
    },
    "disc.query.v1": {
        "filter missing": ({"filter": ...}, "filter"),
        "limit negative": ({"limit": -1}, "limit"),
        "offset text": ({"offset": "1"}, "offset"),
        "filter float": ({"filter": {"region": 1.5}}, "floats"),
    },
    "disc.query.res.v1": {
        "ok with an error": ({"ok": True}, "error is absent if and only if"),
        "not ok without an error": ({"error": ...}, "error is absent if and only if"),
        "not ok with results": ({"results": [{}]}, "results is empty"),
        "not ok with more": ({"more": True}, "results is empty"),
        "error without code": ({"error": {"detail": "d"}}, "code"),
    },
}
"""For each record: changes of the full record (``...`` leaves a field out), and text of the error."""


def _bad(name: str) -> dict[str, Any]:
    body = GOOD[f"{name} all"].encode()
    whole: Any = cbor2.loads(body)
    found = {}
    for case, (changes, text) in BAD[name].items():
        item = {key: value for key, value in (whole | changes).items() if value is not ...}
        found[case] = {"wire": cbor2.dumps(item).hex(), "match": text}
    found["keys misordered"] = {"wire": cbor2.dumps(dict(reversed(whole.items()))).hex(), "match": "order"}
    found["trailing byte"] = {"wire": (body + b"\x00").hex(), "match": "after the item"}
    return found


def make() -> dict[str, bytes]:
    """Name and content of every file."""
    made = {}
    for name in SHAPES:
        good = {case: GOOD[f"{name} {case}"] for case in ("all", "required")}
        values = {
            case: {"wire": each.encode().hex(), "value": each.codec.write_json(each)}
            for case, each in good.items()
        }
        made[f"{name}.json"] = as_json({"good": values, "bad": _bad(name)})
    return made


def on_disk() -> dict[str, bytes]:
    """Name and content of every file."""
    return json_files(FOLDER)


if __name__ == "__main__":
    raise SystemExit(run(FOLDER, make(), on_disk(), sys.argv[1:]))
