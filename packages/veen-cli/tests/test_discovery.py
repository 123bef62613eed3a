"""``veen disc`` and ``veen connect`` against real hubs: patterns A and C, pinning, tokens (spec-5)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame.exits import Exit
from veen_core import cbor
from veen_core.cap import mint
from veen_core.ids import ClientId, HubId, HubPk, StreamId
from veen_core.keys import SigningKey, SigningSeed
from veen_core.profile import DEFAULT_PROFILE, PROFILES
from veen_core.stream import hub_id as hub_id_of
from veen_core.stream import stream_id
from veen_hub.client import Identity, connect
from veen_overlays.discovery.identifiers import overlay_id
from veen_overlays.discovery.records import Endpoint, HubAdvertise, HubRetire
from veen_overlays.discovery.streams import STREAMS, public_reader
from veen_overlays.live.rpc import Call, RpcServer, Service, access
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.schema.record import Record

from .conftest import Town
from .running import Done, ending_hubs, environment, veen

LIAR = SigningKey(SigningSeed(b"\x07" * 32))


@contextmanager
def hub(
    root: Path,
    name: str,
    config: str | Callable[[str], str] = "",
    *flags: str,
    rotated: bool = False,
    shards: int = 1,
) -> Iterator[Town]:
    """A hub process with its own settings, which may depend on its key; identities are in ``root``."""
    data = ("--data-dir", root / name)
    made = veen("hub", "init", *data, "--admin", root / "admin", "--json").json
    if rotated:
        veen("hub", "rotate", *data, "--window", "7d").ok()
        time.sleep(1)  # a new key is valid from the next second on
    if shards > 1:
        whole, data = data, ("--data-dir", root / f"{name}-of-{shards}")
        veen("hub", "reshard", *whole, "--shards", shards, "--out", data[1]).ok()
    file = root / f"{name}.yaml"
    file.write_text(config if isinstance(config, str) else config(made["hub_pk"]))
    started = veen(
        "hub",
        "start",
        *data,
        "--port",
        "0",
        "--detach",
        "--log-level",
        "error",
        "--config",
        file,
        *flags,
        "--json",
    ).json
    try:
        yield Town(root, started["url"], started["probes_url"], made["hub_id"])
    finally:
        veen("hub", "stop", *data)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("city")
    for name in ("admin", "alice", "bob"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    with ending_hubs(root):
        yield root


@pytest.fixture(scope="module")
def directory(people: Path) -> Iterator[Town]:
    """The open hub with the discovery streams (pattern A)."""
    with hub(people, "directory", "", "--open") as town:
        yield town


def discovery(directory: Town, region: str, **more: object) -> str:
    settings = {
        "url": directory.url,
        "pinned": directory.hub_id,
        "region": region,
        "overlays": ["rpc"],
        **more,
    }
    return json.dumps({"discovery": settings})


@asynccontextmanager
async def as_client(town: Town, key: SigningKey, folder: Path) -> AsyncIterator[Any]:
    identity = Identity(signing_key=key, dh_keys=Identity.generate().dh_keys)
    async with connect(town.url, identity, trust=town.hub_id, state=folder) as reached:
        yield reached


def publish_as_hub(town: Town, key: SigningKey, folder: Path, *records: Record) -> None:
    """Publish records of a hub that is not there: what a lying operator can do."""

    async def work() -> None:
        name = STREAMS["hub"]
        async with as_client(town, key, folder) as reached:
            stream = reached.stream(name, to=public_reader(stream_id(name)).public)
            await stream.send(sign_continuity(key, await stream.client_id()))
            for record in records:
                await stream.send(record)

    asyncio.run(work())


def lie(url: str, **values: Any) -> HubAdvertise:
    own = HubPk(LIAR.public)
    told: dict[str, Any] = {
        "hub_id": hub_id_of(own),
        "hub_pk": own,
        "profile_id": DEFAULT_PROFILE.profile_id,
        "region": "lie",
        "tags": (),
        "endpoints": (Endpoint(kind="http", url=url),),
        "overlays": (overlay_id("rpc"),),
        "ttl_sec": 3_600,
        "version": "1",
        **values,
    }
    return HubAdvertise(**told)


def eventually(what: Callable[[], Done], holds: Callable[[Any], bool]) -> Any:
    """The JSON of a command, once it holds; a hub publishes its descriptor just after it has started."""
    for _ in range(200):
        if holds(found := what().json):
            return found
    raise AssertionError(found)


def listed(directory: Town, who: str, region: str) -> Callable[[], Done]:
    return lambda: directory.as_(who, "disc", "query", "hub", "--region", region, "--json")


def test_a_service_is_advertised_listed_alike_for_two_clients_and_retired(directory: Town) -> None:
    sent = directory.as_(
        "alice",
        "disc",
        "advertise",
        "service",
        "shop",
        "--method",
        "pay",
        "--method",
        "quote",
        "--uses",
        "shop",
        "--region",
        "eu",
        "--tag",
        "public",
        "--auth",
        "none",
        "--org",
        "Shop Ltd",
        "--json",
    ).json
    query = ("disc", "query", "service", "--method", "pay", "--region", "eu", "--name", "sh", "--json")
    one, other = directory.as_("alice", *query), directory.as_("bob", *query)
    assert one.out == other.out, "two clients at one root list the same"
    (found,) = one.json["results"]
    assert (found["name"], found["service_id"], found["auth_policy"]) == (
        "shop",
        sent["id"],
        {"mode": "none"},
    )
    assert one.json["as_of"]["upto_seq"] == sent["stream_seq"]
    assert directory.as_("bob", *query[:5], "--region", "us", "--json").json["results"] == []
    stolen = directory.as_("bob", "disc", "retire", "service", sent["id"])
    assert "another publisher has advertised" in stolen.failed(6)
    for words in ("retire", "service", "shop"), ("name", "service", "shop"):  # bob's own: not alice's
        assert "no service shop of yours; nothing was sent" in directory.as_("bob", "disc", *words).failed(1)
    watched = directory.as_("bob", "disc", "watch", "service", "--count", "1", "--json")
    assert watched.json["change"] == "listed"
    directory.as_("alice", "disc", "retire", "service", "shop").ok()
    assert directory.as_("bob", *query).json["results"] == []


def test_a_named_publisher_may_renew_a_service(directory: Town) -> None:
    id_ = directory.as_("alice", "disc", "advertise", "service", "mint", "--uses", "mint", "--json").json[
        "id"
    ]
    bob = Identity.load(directory / "bob").client_id.hex()
    directory.as_("alice", "disc", "name", "service", "mint", "--publisher", bob).ok()
    renew = ("disc", "advertise", "service", "mint", "--id", id_, "--uses", "mint", "--tag", "new", "--json")
    assert directory.as_("bob", *renew).json["id"] == id_
    (found,) = directory.as_("bob", "disc", "query", "service", "--tag", "new", "--json").json["results"]
    assert found["service_id"] == id_


def test_an_overlay_is_listed_by_its_schema(directory: Town) -> None:
    directory.as_("alice", "disc", "advertise", "overlay", "kv.map", "--ttl", "1d").ok()
    found = directory.as_("bob", "disc", "query", "overlay", "--schema", "kv.put.v1", "--json").json[
        "results"
    ]
    assert [each["name"] for each in found] in (["kv.map"], [])
    (named,) = directory.as_("bob", "disc", "query", "overlay", "--name", "kv", "--json").json["results"]
    assert named["overlay_id"] == overlay_id("kv.map").hex()


def test_a_condition_that_the_kind_does_not_have_is_refused(directory: Town) -> None:
    assert (
        "--method is not a condition" in directory.as_("bob", "disc", "query", "hub", "--method", "pay").err
    )


def test_a_server_answers_queries_as_the_local_fold_does(directory: Town, people: Path) -> None:
    """Pattern A with and pattern C without the query API give the same bytes."""
    from veen_cli.discovery.query import QUERY_STREAM  # noqa: PLC0415 - heavy
    from veen_overlays.discovery.state import DISCOVERY  # noqa: PLC0415
    from veen_overlays.live import Materializer  # noqa: PLC0415
    from veen_overlays.live.discovery import DirectoryService, LiveDirectory  # noqa: PLC0415
    from veen_overlays.summary_tree.store import MemoryStore  # noqa: PLC0415

    directory.as_(
        "alice", "disc", "advertise", "service", "paper", "--method", "print", "--uses", "paper"
    ).ok()
    key = SigningKey(SigningSeed(b"\x08" * 32))

    async def work() -> Done:
        async with as_client(directory, key, people / "server") as reached:
            name = STREAMS["service"]
            secret = public_reader(stream_id(name))
            label = reached.stream(name).label()
            view = Materializer(DISCOVERY, label, reached.log_reader(), key=secret, store=MemoryStore())
            await view.open()
            served = DirectoryService({"service": LiveDirectory(view)})
            queries = reached.stream(QUERY_STREAM, readers=[public_reader(stream_id(QUERY_STREAM))])
            server = RpcServer(served.service, access(queries, reached.log_reader()), key)
            running = asyncio.create_task(server.run())
            await server.announced.wait()
            ask = ("disc", "query", "service", "--method", "print", "--via", QUERY_STREAM, "--json")
            asked = await asyncio.to_thread(directory.as_, "bob", *ask)
            server.stop()
            await running
            return asked

    over_rpc = asyncio.run(work()).json
    local = directory.as_("bob", "disc", "query", "service", "--method", "print", "--json").json
    assert over_rpc["results"] == local["results"] != []
    silent = directory.as_("bob", "disc", "query", "service", "--via", "nobody.here")
    assert "rpc.no_server" in silent.failed(2)


def test_the_command_serves_queries_until_it_is_terminated(directory: Town, people: Path) -> None:
    paper = ("disc", "advertise", "service", "press", "--method", "press", "--uses", "press")
    directory.as_("alice", *paper).ok()
    target = ("--hub", directory.url, "--trust", directory.hub_id, "--client", people / "alice")
    server = subprocess.Popen(
        ["veen", "disc", "serve", "--on", "city.queries", *target, "--json"],
        env=environment(people / ".config"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    query = ("disc", "query", "service", "--method", "press", "--json")
    try:
        assert server.stderr is not None
        assert "answering queries on city.queries" in server.stderr.readline()
        asked = directory.as_("bob", *query, "--via", "city.queries").json
    finally:
        server.terminate()
        out, err = server.communicate(timeout=60)
    assert asked["results"] == directory.as_("bob", *query).json["results"] != []
    assert (server.returncode, err) == (0, "")
    assert json.loads(out) == {"stream": "city.queries", "executed": 1}


def test_a_hub_advertises_itself_and_withdraws_when_it_ends(directory: Town, people: Path) -> None:
    with hub(people, "north", discovery(directory, "north", tags=["test"]), "--open") as north:
        found = eventually(listed(directory, "alice", "north"), lambda each: bool(each["results"]))
        (descriptor,) = found["results"]
        assert descriptor["hub_id"] == north.hub_id
        assert descriptor["endpoints"] == [{"kind": "http", "url": north.url}]
        assert (descriptor["tags"], descriptor["expires_at"] > 0) == (["test"], True)
    assert directory.as_("alice", "disc", "query", "hub", "--region", "north", "--json").json["results"] == []


def test_a_hub_with_shards_advertises_itself_once_and_withdraws_when_it_ends(
    directory: Town, people: Path
) -> None:
    config = json.dumps({**json.loads(discovery(directory, "split")), "shards": 2})
    with hub(people, "split", config, "--open", shards=2) as split:
        found = eventually(listed(directory, "alice", "split"), lambda each: bool(each["results"]))
        (descriptor,) = found["results"]
        assert (descriptor["hub_id"], descriptor["endpoints"]) == (
            split.hub_id,
            [{"kind": "http", "url": split.url}],
        )
    assert directory.as_("alice", "disc", "query", "hub", "--region", "split", "--json").json["results"] == []


def test_a_hub_that_has_rotated_its_key_proves_the_new_one_in_the_directory(
    directory: Town, people: Path
) -> None:
    with hub(people, "south", discovery(directory, "south"), "--open", rotated=True) as south:
        found = eventually(listed(directory, "alice", "south"), lambda each: bool(each["results"]))
        (descriptor,) = found["results"]
        assert descriptor["hub_id"] == south.hub_id != hub_id_of(HubPk.from_hex(descriptor["hub_pk"])).hex()


def test_a_hub_may_hold_the_directory_itself(people: Path) -> None:
    config = json.dumps({"discovery": {"region": "self"}})
    with hub(people, "alone", config, "--open") as alone:
        found = eventually(listed(alone, "alice", "self"), lambda each: bool(each["results"]))
        assert found["results"][0]["hub_id"] == alone.hub_id


def test_a_hub_renews_its_descriptor_before_it_expires(directory: Town, people: Path) -> None:
    def one(found: Any) -> int:
        return int(found["results"][0]["expires_at"]) if found["results"] else 0

    with hub(people, "east", discovery(directory, "east", ttl_sec=3), "--open"):
        first = one(eventually(listed(directory, "alice", "east"), lambda found: one(found) > 0))
        renewed = eventually(listed(directory, "alice", "east"), lambda found: one(found) != first)
        assert one(renewed) > first


def test_a_gated_directory_takes_the_descriptors_of_publishers_with_a_token(people: Path) -> None:
    def token(subject: object, stream: str) -> Path:
        file = people / f"{stream}.cap"
        issue = ("cap", "issue", "--issuer", people / "admin", "--subject", subject)
        veen(*issue, "--stream", stream, "--out", file).ok()
        return file

    with hub(people, "members") as members:
        service = ("disc", "advertise", "service", "lookup", "--method", "find", "--uses", "names")
        refused = members.as_("alice", *service)
        assert (refused.code, "cap" in refused.err) == (Exit.REFUSED, True)
        members.as_("alice", *service, "--cap", token(people / "alice", STREAMS["service"])).ok()
        assert members.as_("bob", "disc", "query", "service", "--json").json["results"][0]["name"] == "lookup"

        def with_token(hub_pk: str) -> str:
            return discovery(members, "inner", token=str(token(hub_pk, STREAMS["hub"])))

        with hub(people, "inner", with_token) as inner:
            found = eventually(listed(members, "bob", "inner"), lambda each: bool(each["results"]))
            assert found["results"][0]["hub_id"] == inner.hub_id
        assert members.as_("bob", "disc", "query", "hub", "--json").json["results"] == []


CONNECT = ("connect", "--service", "translator", "--method", "translate", "--region", "west")


@pytest.fixture(scope="module")
def west(directory: Town, people: Path) -> Iterator[Town]:
    """A gated hub with a service, both in the directory."""
    with hub(people, "west", discovery(directory, "west")) as town:
        eventually(listed(directory, "alice", "west"), lambda each: bool(each["results"]))
        details = json.dumps({"issue": {"stream": "tokens", "method": "cap.issue"}})
        directory.as_(
            "alice",
            "disc",
            "advertise",
            "service",
            "translator",
            "--method",
            "translate",
            "--uses",
            "translations",
            "--region",
            "west",
            "--cap-name",
            "write",
            "--auth",
            "cap_token",
            "--auth-details",
            details,
            "--contact",
            "ops@example.com",
        ).ok()
        yield town


def test_a_new_hub_is_not_trusted_without_a_decision(directory: Town, west: Town) -> None:
    refused = directory.as_("bob", *CONNECT, "--quiet").failed(6)
    assert f"--trust-hub {west.hub_id}" in refused
    other = directory.as_("bob", *CONNECT, "--quiet", "--trust-hub", "ab" * 32).failed(3)
    assert "--trust-hub names another hub" in other


def test_connect_says_what_token_to_ask_for_and_then_binds(directory: Town, west: Town, people: Path) -> None:
    directory.as_(
        "alice",
        "disc",
        "advertise",
        "service",
        "mailer",
        "--method",
        "mail",
        "--uses",
        "mails",
        "--region",
        "west",
        "--auth",
        "cap_token",
        "--contact",
        "ops@example.com",
    ).ok()
    connect_ = ("connect", "--service", "mailer", "--region", "west", "--trust-hub", west.hub_id, "--quiet")
    asked = directory.as_("bob", *connect_).failed(6)
    bob = Identity.load(people / "bob").client_id.hex()
    assert f"ask ops@example.com to run `veen cap issue --issuer ADMIN --subject {bob}" in asked
    token = people / "mailer.cap"
    veen(
        "cap",
        "issue",
        "--issuer",
        people / "admin",
        "--subject",
        people / "bob",
        "--stream",
        "mails",
        "--out",
        token,
    ).ok()
    veen("context", "add", "mailer", "--hub", directory.url).ok()
    assert "context mailer already" in directory.as_("bob", *connect_, "--token", token).failed(6)
    connections = people / "bob" / "connections.json"
    connections.write_text("[]")
    refused = directory.as_("bob", *connect_, "--token", token, "--name", "mail").failed(1)
    assert (f"{connections} is not a list" in refused, connections.read_text()) == (True, "[]")
    connections.unlink()
    done = directory.as_("bob", *connect_, "--token", token, "--name", "mail", "--json").json
    assert done["publisher"] == Identity.load(people / "alice").client_id.hex()
    assert (done["hub"], done["hub_id"], done["auth_ref"] is not None) == (west.url, west.hub_id, True)
    assert {step["phase"] for step in done["steps"]} == {1, 2, 3, 4}
    shown = veen("context", "show", "mail", "--json").json
    assert (shown["hub"], shown["trust"], shown["stream"]) == (
        west.url,
        west.hub_id,
        stream_id("mails").hex(),
    )
    kept = json.loads((people / "bob" / "connections.json").read_text())["mail"]
    assert (kept["service_id"], kept["auth_ref"]) == (done["service_id"], done["auth_ref"])


def at_a_terminal(people: Path, answer: str, *args: object) -> Done:
    """Run ``veen`` as a process whose input is a terminal, at which a person types an answer."""
    person, terminal = pty.openpty()
    try:
        os.write(person, answer.encode() + b"\n")
        done = subprocess.run(
            ["veen", *map(str, args)],
            env=environment(people / ".config"),
            stdin=terminal,
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )
    finally:
        os.close(terminal)
        os.close(person)
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_person_decides_whether_to_trust_a_new_hub(directory: Town, west: Town, people: Path) -> None:
    veen("keygen", "--out", people / "carol", "--no-passphrase").ok()
    offer = ("--uses", "posts", "--region", "west", "--auth", "cap_token", "--contact", "ops@example.com")
    directory.as_("alice", "disc", "advertise", "service", "poster", *offer).ok()
    token = people / "poster.cap"
    issue = ("cap", "issue", "--issuer", people / "admin", "--subject", people / "carol", "--stream", "posts")
    veen(*issue, "--out", token).ok()
    target = ("--hub", directory.url, "--trust", directory.hub_id, "--client", people / "carol")
    connect_ = ("connect", "--service", "poster", "--region", "west", "--token", token, *target, "--json")
    for answer in ("n", ""):
        refused = at_a_terminal(people, answer, *connect_)
        assert refused.code == 6, refused
        assert (west.hub_id in refused.err, "nothing was sent to it" in refused.err) == (True, True)
        assert not (people / "carol" / "connections.json").exists()
        assert west.hub_id not in {each.name for each in (people / "carol").rglob("*")}
    done = at_a_terminal(people, "y", *connect_)
    assert "trust it?" in done.err
    assert done.json["hub_id"] == west.hub_id
    assert any("and you trust it" in step["why"] for step in done.json["steps"])
    again = at_a_terminal(people, "", *connect_)
    assert ("trust it?" in again.err, again.json["hub_id"]) == (False, west.hub_id)


def test_connect_obtains_a_token_from_the_services_issuer(directory: Town, west: Town, people: Path) -> None:
    admin = Identity.load(people / "admin").signing_key
    service = Service()
    asked: list[dict[str, Any]] = []

    async def issue(args: Any, call: Call) -> Any:
        del call
        asked.append(args)
        streams = tuple(StreamId(each) for each in args["stream_ids"])
        token = mint(admin, ClientId(args["subject"]), streams, ttl=3_600)
        return {"token": token.encode()}

    service.add_untyped("cap.issue", issue)
    key = SigningKey(SigningSeed(b"\x09" * 32))

    async def work() -> Done:
        async with as_client(directory, key, people / "issuer") as reached:
            stream = reached.stream("tokens", readers=[public_reader(stream_id("tokens"))])
            server = RpcServer(service, access(stream, reached.log_reader()), key)
            running = asyncio.create_task(server.run())
            await server.announced.wait()
            flags = ("--trust-hub", west.hub_id, "--json")
            done = await asyncio.to_thread(directory.as_, "alice", *CONNECT, *flags)
            server.stop()
            await running
            return done

    done = asyncio.run(work()).json
    assert done["service"] == "translator"
    assert any("issued by cap.issue" in step["why"] for step in done["steps"])
    assert asked[0]["required_caps"] == ["write"]
    again = directory.as_("alice", *CONNECT, "--json").json
    reasons = [step["why"] for step in again["steps"]]
    assert any("this identity has used it before" in why for why in reasons)
    assert any("this identity holds it" in why for why in reasons)
    assert asyncio.run(_translated(west, people)).json["result"] == {"text": "GOOD"}


async def _translated(west: Town, people: Path) -> Done:
    """Serve the translator at its hub, and call it with nothing but the context that connect has written."""
    admin = Identity.load(people / "admin").signing_key
    veen("keygen", "--out", people / "reader", "--no-passphrase").ok()
    reader, key = Identity.load(people / "reader").dh_keys[0], SigningKey(SigningSeed(b"\x0c" * 32))
    service = Service()

    @service.method("translate")
    async def translate(text: str) -> dict[str, str]:
        return {"text": text.upper()}

    async with as_client(west, key, people / "translator-state") as reached:
        await reached.authorize(
            mint(admin, ClientId(key.public), [StreamId(stream_id("translations"))], ttl=3_600)
        )
        stream = reached.stream("translations", readers=[reader])
        server = RpcServer(service, access(stream, reached.log_reader()), key)
        running = asyncio.create_task(server.run())
        await server.announced.wait()
        call = ("rpc", "call", "translate", '{"text": "good"}', "--reader", str(people / "reader"), "--json")
        done = await asyncio.to_thread(veen, "--context", "translator", *call)
        server.stop()
        await running
        return done


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, f"but the pinned hub is {hub_id_of(HubPk(LIAR.public)).hex()}"),
        ({"profile_id": PROFILES["bulk"].profile_id}, "but the pinned hub is"),
    ],
    ids=["the endpoint of another hub", "and another profile"],
)
def test_a_descriptor_with_the_endpoint_of_another_hub_is_refused_at_pinning(
    directory: Town, west: Town, people: Path, values: dict[str, Any], reason: str
) -> None:
    folder = people / f"liar-{len(values)}"
    publish_as_hub(directory, LIAR, folder, lie(west.url, **values))
    try:
        refused = directory.as_(
            "bob",
            "connect",
            "--service",
            "translator",
            "--region",
            "lie",
            "--quiet",
            "--trust-hub",
            hub_id_of(HubPk(LIAR.public)).hex(),
        ).failed(3)
        assert reason in refused
    finally:
        publish_as_hub(directory, LIAR, folder, HubRetire(hub_id=hub_id_of(HubPk(LIAR.public))))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"hub_pk": HubPk(LIAR.public)}, "is not an active key of the hub"),
        ({"profile_id": PROFILES["bulk"].profile_id}, "but the hub has"),
    ],
    ids=["hub_pk", "profile"],
)
def test_a_hub_that_lies_about_itself_is_refused_at_pinning(
    directory: Town, people: Path, values: dict[str, Any], reason: str
) -> None:
    """The operator of a real hub signs a wrong descriptor with the hub's own key."""
    name = f"crook-{'-'.join(values)}"
    with hub(people, name, "", "--open") as crook:
        key = _hub_key(people / name)
        told = {"hub_id": HubId.from_hex(crook.hub_id), "hub_pk": HubPk(key.public), "region": name, **values}
        directory.as_("alice", "disc", "advertise", "service", name, "--method", "x", "--uses", "x").ok()
        publish_as_hub(directory, key, people / f"{name}-state", lie(crook.url, **told))
        flags = ("--region", name, "--trust-hub", crook.hub_id, "--quiet")
        assert reason in directory.as_("bob", "connect", "--service", name, *flags).failed(3)
        publish_as_hub(directory, key, people / f"{name}-state", lie(crook.url, **{**told, **_honest(key)}))
        assert directory.as_("bob", "connect", "--service", name, *flags, "--json").json["hub"] == crook.url
        publish_as_hub(
            directory, key, people / f"{name}-state", HubRetire(hub_id=HubId.from_hex(crook.hub_id))
        )


def _honest(key: SigningKey) -> dict[str, Any]:
    return {"hub_pk": HubPk(key.public), "profile_id": DEFAULT_PROFILE.profile_id}


def _hub_key(data: Path) -> SigningKey:
    (file,) = data.rglob("hub-*.key")
    item: Any = cbor.decode_items(file.read_bytes())
    return SigningKey(SigningSeed(list(item.values())[-1] if isinstance(item, dict) else item[-1]))
