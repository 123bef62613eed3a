"""A hub that lies about its log: rolled back, forked, or shown differently to each client (P1, P2)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from veen_core.api import ErrorEnvelope
from veen_core.errors import ProofError, QuorumError
from veen_core.hub_fork import HubLogFork, LabelFork, verify_hub_log_fork, verify_label_fork
from veen_core.hub_log import HubConsistencyResponse, HubProofResponse
from veen_core.ids import NodeHash, StreamSeq
from veen_core.rejection import Code
from veen_core.tlog.add_checkpoint import PATH, AddCheckpoint
from veen_core.tlog.policy import parse_policy
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_hub.client import Diverged, Hub, MemoryStateStore, Misbehaved, Unconfirmed, connect
from veen_hub.client.hub_log.checkpoints import RECORD
from veen_hub.client.state.records import HubCheckpointRecord

from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_proxy import Proxy, between, honest
from .client_witnesses import AT_ONCE, Watched, watched

ALICE = person("alice")
HUBS_WORD = parse_policy(b"quorum none\n")
"""A policy without witnesses: the client's own memory is all that protects it."""
CONFIG = json.dumps({"hub_log": AT_ONCE})
LOG_PATHS = ("/log/", "/v1/hublog/")
NOT_FOUND = ErrorEnvelope(code=Code.NOT_FOUND.value, message="gone").encode()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("hub"), config=CONFIG) as one:
        yield one


def connecting(at: HubProcess | Proxy, hub: HubProcess, **options: Any) -> Any:
    options = {"witnesses": HUBS_WORD, "retry": QUICK, **options}
    return connect(at.url, ALICE, trust=hub.hub_id, **options)


async def send(hub: Hub, stream: str, count: int = 1) -> None:
    for n in range(count):
        await hub.stream(stream).send(f"{n}", confirm=True)


# --- the client's own memory


def test_a_hub_log_that_shrank_is_a_divergence_with_both_notes_as_evidence(
    hub: HubProcess, tmp_path: Path
) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connecting(proxy, hub, state=tmp_path) as client:
                await send(client, "shrank")
                earlier = client.hub_checkpoint.encode()
                await send(client, "shrank")
                held = client.hub_checkpoint.encode()
            proxy.lie = lambda path, _request, answer: earlier if path == "/log/checkpoint" else answer
            with pytest.raises(Diverged, match=r"a hub log of \d+ entries, and showed \d+ before") as caught:
                async with connecting(proxy, hub, state=tmp_path):
                    pass
            found = caught.value
            assert (found.held, found.shown) == (held, earlier)
            assert found.folder is not None
            assert (found.folder / "held.note").read_bytes() == held
            assert (found.folder / "shown.note").read_bytes() == earlier
            assert found.fork is None  # an old hub checkpoint contradicts nothing by itself

    run(story())


def test_a_hub_that_denies_its_log_is_a_divergence(hub: HubProcess) -> None:
    store = MemoryStateStore()

    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connecting(proxy, hub, state=store) as client:
                await send(client, "denied")

            async def gone(path: str) -> web.Response | None:
                return web.Response(status=404, body=NOT_FOUND) if path == "/log/checkpoint" else None

            proxy.before = gone
            with pytest.raises(Diverged, match="no hub checkpoint"):
                async with connecting(proxy, hub, state=store):
                    pass

    run(story())


def test_a_hub_that_hides_its_log_from_a_new_client_cannot_pass_for_a_young_one(tmp_path: Path) -> None:
    """Without a record of its own, a client knows the age of what it reads."""
    with watched(tmp_path, **AT_ONCE) as made:

        async def gone(path: str) -> web.Response | None:
            return web.Response(status=404, body=NOT_FOUND) if path.startswith(LOG_PATHS) else None

        async def story() -> None:
            async with between(made.hub.url) as proxy:
                proxy.before = gone
                async with connecting(proxy, made.hub, witnesses=None) as client:
                    receipt = await client.stream("hidden").send("one")
                for policy in (made.policy(max_age=3_600), HUBS_WORD):
                    async with connecting(proxy, made.hub, witnesses=policy) as client:
                        messages = client.stream("hidden").read()
                        assert [message.confirmed async for message in messages] == [False]
                while time.time() < receipt.hub_ts + 2:
                    await asyncio.sleep(0.05)
                async with connecting(proxy, made.hub, witnesses=made.policy(max_age=1)) as client:
                    with pytest.raises(QuorumError, match="no hub checkpoint, but an entry"):
                        await anext(client.stream("hidden").read())

        run(story())


def test_a_restored_data_directory_is_found_out_by_the_client(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serving(tmp_path, config=CONFIG) as one:

        async def story(count: int) -> None:
            async with connecting(one, one, state=state) as client:
                await send(client, "orders", count)

        run(story(2))
        one.stop()
        shutil.copytree(one.directory, tmp_path / "backup")
        one.start()
        run(story(2))
        one.kill()
        shutil.rmtree(one.directory)
        shutil.copytree(tmp_path / "backup", one.directory)
        one.start()
        with pytest.raises(Diverged, match="showed"):
            run(story(1))


def test_two_histories_of_one_hub_make_evidence_that_a_third_party_verifies(tmp_path: Path) -> None:
    """Two processes with copies of one data directory; a client reaches first one, then the other."""
    state = tmp_path / "state"
    with serving(tmp_path / "a", config=CONFIG) as first:

        async def start() -> None:
            async with connecting(first, first, state=state) as client:
                await send(client, "common", 3)

        run(start())
        first.stop()
        with serving(tmp_path / "b", config=CONFIG, twin_of=first) as second:
            first.start()

            async def story() -> None:
                async with connecting(first, first, state=state) as client:
                    await send(client, "here", 2)
                async with connecting(second, second) as other:
                    await send(other, "there", 5)
                with pytest.raises(Diverged, match="does not extend") as caught:
                    async with connecting(second, second, state=state):
                        pass
                found = caught.value
                assert isinstance(found.fork, HubLogFork)
                verify_hub_log_fork(found.fork, pinned=first.hub_id)
                assert found.folder is not None
                assert HubLogFork.decode((found.folder / "fork.cbor").read_bytes()) == found.fork

            run(story())


@pytest.mark.parametrize("times", [1, 2], ids=["once", "always"])
def test_a_damaged_consistency_proof_is_asked_for_again_and_then_a_divergence(
    hub: HubProcess, times: int
) -> None:
    store = MemoryStateStore()

    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connecting(proxy, hub, state=store) as client:
                await send(client, f"damaged/{times}", 3)
            left = times

            def lie(path: str, _request: bytes, answer: bytes) -> bytes:
                nonlocal left
                if path != "/v1/hublog/consistency" or not left:
                    return answer
                left -= 1
                found = HubConsistencyResponse.decode(answer)
                return dataclasses.replace(found, proof=(NodeHash(bytes(32)), *found.proof[1:])).encode()

            async with connect(hub.url, ALICE, trust=hub.hub_id) as direct:
                await direct.stream(f"damaged/{times}").send("more")
                size = parse_signed_head(_held(store, hub)).head.size
                while (await direct.connection.api.hub_checkpoint()).head.size == size:  # type: ignore[union-attr]
                    await asyncio.sleep(0.02)
            proxy.lie = lie
            if times == 1:
                async with connecting(proxy, hub, state=store) as client:
                    await send(client, "damaged/after")
            else:
                with pytest.raises(Diverged, match="does not extend"):
                    async with connecting(proxy, hub, state=store):
                        pass

    run(story())


def _held(store: MemoryStateStore, hub: HubProcess) -> bytes:
    content = store.load(hub.hub_id, RECORD)
    assert content is not None
    return HubCheckpointRecord.decode(content).checkpoint


# --- lies about single answers


def _changed(**changes: Any) -> Any:
    def lie(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/hublog/proof":
            return answer
        found = HubProofResponse.decode(answer)
        head = {name: value for name, value in changes.items() if name in ("upto_seq", "label")}
        rest = {name: value for name, value in changes.items() if name not in head}
        if head:
            rest["head"] = dataclasses.replace(found.head, **head)
        return dataclasses.replace(found, **rest).encode()

    return lie


PROOF_LIES = {
    "another head": _changed(upto_seq=StreamSeq(1_000)),
    "another place": _changed(index=0),
    "no proof": _changed(proof=()),
    "no checkpoint": _changed(checkpoint=b"not a note"),
}


@pytest.mark.parametrize("name", PROOF_LIES)
def test_a_false_place_in_the_hub_log_confirms_nothing(hub: HubProcess, name: str) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy, connecting(proxy, hub) as client:
            stream = client.stream(f"false/{name}")
            await stream.send("one", confirm=True)
            await stream.send("two", confirm=True)
            proxy.lie = PROOF_LIES[name]
            with pytest.raises((ProofError, Misbehaved)):
                await stream.send("three", confirm=True)
            proxy.lie = honest
            assert await client.confirm(await stream.receipt(3)) is None

    run(story())


@pytest.mark.parametrize("what", ["entries", "tile"])
def test_a_list_of_labels_from_a_changed_log_is_refused(hub: HubProcess, what: str) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy, connecting(proxy, hub) as client:
            await send(client, f"labels/{what}", 2)

            def lie(path: str, _request: bytes, answer: bytes) -> bytes:
                kind = "entries" if "/entries/" in path else "tile" if "/log/tile/" in path else ""
                return answer[:-1] + bytes([answer[-1] ^ 1]) if kind == what else answer

            proxy.lie = lie
            with pytest.raises(ProofError):
                await client.label_heads()

    run(story())


def test_a_hub_that_withholds_a_part_of_its_log_cannot_prove_its_labels(hub: HubProcess) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy, connecting(proxy, hub) as client:
            await send(client, "withheld")

            async def gone(path: str) -> web.Response | None:
                return web.Response(status=404, body=NOT_FOUND) if "/entries/" in path else None

            proxy.before = gone
            with pytest.raises(Misbehaved, match="does not serve all of its log"):
                await client.label_heads()

    run(story())


# --- split views: two clients, two histories, one witness


@pytest.fixture
def split(tmp_path: Path) -> Iterator[tuple[Watched, HubProcess]]:
    """A hub that its witnesses cosign, and its twin with the same key and another history."""
    with watched(tmp_path / "a", **AT_ONCE) as made:

        async def start() -> None:
            async with connecting(made.hub, made.hub, witnesses=made.policy()) as client:
                await send(client, "common", 3)

        run(start())
        made.hub.stop()
        with serving(tmp_path / "b", config=CONFIG, twin_of=made.hub) as twin:
            made.hub.start()
            yield made, twin


async def cosign(witness_url: str, signed: SignedHead) -> int:
    """Ask a witness to cosign a hub checkpoint, as its first one; return the status of the answer."""
    request = AddCheckpoint(0, (), signed).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{witness_url}{PATH}", data=request) as answer,
    ):
        return answer.status


def test_a_hub_that_shows_two_clients_different_heads_is_caught_by_the_policy_alone(
    split: tuple[Watched, HubProcess],
) -> None:
    made, twin = split

    async def story() -> None:
        policy = made.policy()
        async with connecting(made.hub, made.hub, witnesses=policy) as one:
            await send(one, "orders", 2)
            assert one.hub_checkpoint is not None
        # The second client has no memory and never meets the first. Before the histories part, the twin's
        # published checkpoint is the common, cosigned one; what the twin signs later gets no quorum.
        async with connecting(twin, made.hub, witnesses=policy) as two:
            with pytest.raises(Unconfirmed, match="0 of 2 witnesses"):
                await two.stream("orders").send("another history", confirm=True, confirm_timeout=3.0)
            states = [message.confirmed async for message in two.stream("common").read()]
            assert states == [True] * 3
            states = [message.confirmed async for message in two.stream("orders").read()]
            assert states == [False]
            signed = await two.connection.api.hub_checkpoint()
            assert [await cosign(witness.url, signed) for witness in (made.ours, made.other)] == [409, 409]
        with pytest.raises(QuorumError, match="0 of 2 witnesses"):
            async with connecting(twin, made.hub, witnesses=policy):
                pass

    run(story())


def test_a_hub_that_shows_the_cosigned_log_beside_another_history_convicts_itself(
    split: tuple[Watched, HubProcess], tmp_path: Path
) -> None:
    """The twin serves its own messages, and the hub log that the witnesses have cosigned."""
    made, twin = split

    async def story() -> None:
        policy = made.policy()
        async with connecting(made.hub, made.hub, witnesses=policy) as one:
            await send(one, "orders", 2)
        async with connect(twin.url, ALICE, trust=made.hub.hub_id) as there:
            await there.stream("orders").send("another history")
            await there.stream("orders").send("of the same length")
        async with between(twin.url) as proxy:
            proxy.elsewhere = {"/log/": made.hub.url, "/v1/hublog/": made.hub.url}
            async with connecting(proxy, made.hub, witnesses=policy, state=tmp_path / "state") as victim:
                with pytest.raises(Diverged, match="another root of label") as caught:
                    await anext(victim.stream("orders").read())
        fork = caught.value.fork
        assert isinstance(fork, LabelFork)
        verify_label_fork(fork, pinned=made.hub.hub_id)
        assert caught.value.folder is not None
        assert sorted(path.name for path in caught.value.folder.iterdir()) == [
            "fork.cbor",
            "held.cbor",
            "shown.cbor",
        ]

    run(story())
