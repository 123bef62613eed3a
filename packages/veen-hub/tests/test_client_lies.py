"""A hub or a proxy that lies: the client raises and never returns anything false (§9)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from veen_core import PROFILES, Equivocation, Receipt, VerificationError, verify_evidence
from veen_core.api import (
    CheckpointResponse,
    ConsistencyResponse,
    ErrorEnvelope,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
)
from veen_core.errors import CheckpointError, DivergenceError, IdentityError, SignatureError, StateError
from veen_core.ids import HubId, LeafHash, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.rejection import Code
from veen_core.status import CheckpointsResponse, Status
from veen_hub.client import (
    CapRefused,
    Diverged,
    Hub,
    MemoryStateStore,
    Misbehaved,
    NotFound,
    Retry,
    Stream,
    connect,
)
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.framing import Framer
from veen_hub.client.wire.http_transport import HttpTransport
from veen_hub.client.wire.transport import Timeouts

from .client_fixtures import ADMIN, QUICK, HubProcess, person, run, serving, token_for
from .client_proxy import Lie, Proxy, between, honest

ALICE = person("alice")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("hub")) as one:
        yield one


@asynccontextmanager
async def talking(
    hub: HubProcess, name: str, *, sent: int = 20, state: Path | None = None
) -> AsyncIterator[tuple[Proxy, Hub, Stream]]:
    """A stream with some messages, and a client that reaches the hub through a proxy."""
    async with between(hub.url) as proxy:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as direct:
            async for _ in direct.stream(name).send_many(f"{n}" for n in range(1, sent + 1)):
                pass
        async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK, state=state) as client:
            yield proxy, client, client.stream(name)


def on_pages(change: Callable[[StreamResponse], StreamResponse]) -> Lie:
    def lie(path: str, _request: bytes, answer: bytes) -> bytes:
        return change(StreamResponse.decode(answer)).encode() if path == "/v1/stream" else answer

    return lie


def with_item(page: StreamResponse, at: int, **changes: object) -> StreamResponse:
    items = list(page.items)
    items[at] = dataclasses.replace(items[at], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(page, items=tuple(items))


def forged_root(page: StreamResponse) -> StreamResponse:
    receipt = page.items[9].receipt
    assert receipt is not None
    return with_item(page, 9, receipt=dataclasses.replace(receipt, mmr_root=MmrRoot(bytes(32))))


def dropped_entry(page: StreamResponse) -> StreamResponse:
    return dataclasses.replace(page, items=page.items[:5] + page.items[6:])


def swapped_messages(page: StreamResponse) -> StreamResponse:
    first, second = page.items[3], page.items[4]
    return with_item(with_item(page, 3, msg=second.msg), 4, msg=first.msg)


def altered_message(page: StreamResponse) -> StreamResponse:
    msg = page.items[7].msg
    return with_item(page, 7, msg=dataclasses.replace(msg, ciphertext=bytes(len(msg.ciphertext))))


def without_receipt(page: StreamResponse) -> StreamResponse:
    return with_item(page, 2, receipt=None)


def later_time(page: StreamResponse) -> StreamResponse:
    receipt = page.items[9].receipt
    assert receipt is not None
    return with_item(page, 9, receipt=dataclasses.replace(receipt, hub_ts=UnixTime(receipt.hub_ts + 1)))


def wrong_cursor(page: StreamResponse) -> StreamResponse:
    return dataclasses.replace(page, next_cursor=type(page.from_seq)(9))


PAGE_LIES = [
    forged_root,
    dropped_entry,
    swapped_messages,
    altered_message,
    without_receipt,
    later_time,
    wrong_cursor,
]


@pytest.mark.parametrize("lie", PAGE_LIES, ids=lambda lie: lie.__name__)
def test_a_page_with_a_false_entry_yields_nothing(
    hub: HubProcess, lie: Callable[..., StreamResponse]
) -> None:
    async def story() -> None:
        async with talking(hub, f"pages/{lie.__name__}") as (proxy, _client, stream):
            proxy.lie = on_pages(lie)
            with pytest.raises(VerificationError):
                await anext(stream.read())
            proxy.lie = honest
            assert len([m async for m in stream.read()]) == 20  # the state was left as it was

    run(story())


def test_a_replayed_older_page_is_refused(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "replay") as (proxy, _client, stream):
            first: list[bytes] = []

            def replay(path: str, _request: bytes, answer: bytes) -> bytes:
                if path != "/v1/stream":
                    return answer
                first.append(answer)
                return first[0]

            proxy.lie = replay
            assert len([m async for m in stream.read(1, 5)]) == 5
            with pytest.raises(Misbehaved, match="entry 1 where entry 6 belongs"):
                _ = [m async for m in stream.read(6, 10)]

    run(story())


@pytest.mark.parametrize("shown", [0, 12, 19], ids=["all", "some", "the-last"])
def test_the_hub_cannot_hide_a_known_entry(hub: HubProcess, shown: int) -> None:
    async def story() -> None:
        async with talking(hub, f"hidden/{shown}") as (proxy, _client, stream):
            _ = [m async for m in stream.read()]
            proxy.lie = on_pages(
                lambda page: dataclasses.replace(page, items=page.items[:shown], next_cursor=None)
            )
            with pytest.raises(Misbehaved, match="but showed 20 entries before"):
                _ = [m async for m in stream.read()]
            proxy.lie = on_pages(lambda page: dataclasses.replace(page, next_cursor=None))
            assert len([m async for m in stream.read(3, 15)]) == 13

    run(story())


def test_a_message_sent_while_a_page_is_read_is_not_a_contradiction(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "meanwhile", sent=5) as (proxy, _client, stream):
            await stream.send("6")
            answered, sent = asyncio.Event(), asyncio.Event()

            async def held_back(path: str) -> None:
                if path == "/v1/stream":
                    answered.set()
                    await sent.wait()

            proxy.after = held_back
            reading = asyncio.create_task(_texts(stream))
            await answered.wait()
            await stream.send("7")
            sent.set()
            assert await reading == [str(n) for n in range(1, 7)]

    run(story())


async def _texts(stream: Stream) -> list[str]:
    return [m.text async for m in stream.read()]


def test_an_empty_page_with_a_next_cursor_is_refused(hub: HubProcess, tmp_path: Path) -> None:
    lost: list[bytes] = []

    def promise(path: str, request: bytes, answer: bytes) -> bytes | None:
        if path == "/v1/submit" and not lost:
            lost.append(answer)
            return None
        if path != "/v1/stream":
            return answer
        start = StreamRequest.decode(request).from_seq
        page = StreamResponse.decode(answer)
        return dataclasses.replace(page, items=(), next_cursor=start).encode()

    async def story() -> None:
        async with talking(hub, "promise", state=tmp_path) as (proxy, _client, stream):
            proxy.lie = promise
            with pytest.raises(Misbehaved, match="next_cursor"):
                _ = [m async for m in stream.read()]
            with pytest.raises(Misbehaved, match="next_cursor"):  # it was accepted, and is looked for
                await stream.send("x")
            proxy.lie = honest
            assert (await stream.send("y")).stream_seq == 22

    run(story())


def test_the_hub_cannot_take_back_a_checkpoint(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            connect(hub.url, ALICE, trust=hub.hub_id) as direct,
            talking(hub, "taken back", sent=10, state=tmp_path) as (proxy, client, stream),
        ):
            admin = direct.admin(ADMIN)
            (older,) = await admin.checkpoint(stream.label())
            await direct.stream("taken back").send("11")
            (newer,) = await admin.checkpoint(stream.label())
            assert await stream.checkpoint() == newer
            assert await stream.checkpoint(10) == older

            def stale(path: str, _request: bytes, answer: bytes) -> bytes:
                return CheckpointResponse(checkpoint=older).encode() if path == "/v1/checkpoint" else answer

            def nothing(path: str, _request: bytes, answer: bytes) -> bytes | web.Response:
                gone = ErrorEnvelope(code=Code.NOT_FOUND, message="no checkpoint")
                return web.Response(status=404, body=gone.encode()) if path == "/v1/checkpoint" else answer

            for lie, error in ((stale, CheckpointError), (nothing, Misbehaved)):
                proxy.lie = lie
                with pytest.raises(error):
                    await stream.checkpoint()
        async with between(hub.url) as proxy:
            proxy.lie = stale  # and after a restart, from what was written down
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path) as client:
                with pytest.raises(CheckpointError):
                    await client.stream("taken back").checkpoint()

    run(story())


def test_the_admin_client_refuses_a_checkpoint_of_another_label(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "of another", sent=2) as (proxy, client, stream):
            await client.stream("of one").send("x")
            (other,) = await client.admin(ADMIN).checkpoint(client.stream("of one").label())

            def lie(path: str, _request: bytes, answer: bytes) -> bytes:
                made = CheckpointsResponse(checkpoints=(other,))
                return made.encode() if path == "/tooling/checkpoint" else answer

            proxy.lie = lie
            with pytest.raises(Misbehaved, match="another label"):
                await client.admin(ADMIN).checkpoint(stream.label())

    run(story())


def test_an_older_checkpoint_asked_for_before_a_newer_one_was_seen_is_accepted(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "overtaken", sent=3) as (proxy, client, stream):
            admin = client.admin(ADMIN)
            (older,) = await admin.checkpoint(stream.label())

            async def overtake(path: str) -> None:
                if path == "/v1/checkpoint":
                    proxy.after = None
                    await stream.send("4")
                    await admin.checkpoint(stream.label())
                    assert (await stream.checkpoint()) != older

            proxy.after = overtake
            assert await stream.checkpoint() == older

    run(story())


# --- answers made to cost much


def test_a_response_that_is_expensive_to_decode_is_refused_early(hub: HubProcess) -> None:
    def bomb(path: str, _request: bytes, answer: bytes) -> bytes:
        if path == "/v1/stream":
            count = 8_000_000
            return b"\xa1\x01\x9a" + count.to_bytes(4, "big") + b"\x80" * count
        return b"\x9a" + (2**22).to_bytes(4, "big") + b"\x80" * 2**22 if path == "/v1/receipt" else answer

    async def story() -> None:
        async with talking(hub, "bomb") as (proxy, _client, stream):
            proxy.lie = bomb
            started = time.process_time()
            with pytest.raises(Misbehaved, match="CBOR items"):
                _ = [m async for m in stream.read()]
            with pytest.raises(Misbehaved, match="response is larger than"):
                await stream.receipt(3)
            assert time.process_time() - started < 2

    run(story())


def test_a_live_item_of_many_cbor_items_is_refused_while_it_arrives() -> None:
    framer = Framer(1_000_000)
    with pytest.raises(Misbehaved, match="CBOR items"):
        framer.feed(b"\x9a" + (900_000).to_bytes(4, "big") + b"\x00" * 70)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(hub: HubProcess, status: int) -> None:
    async def story() -> None:
        async with talking(hub, "redirect", sent=1) as (proxy, _client, stream):
            proxy.lie = lambda _path, _request, _answer: web.Response(
                status=status, headers={"Location": f"{hub.url}/v1/status"}
            )
            with pytest.raises(Misbehaved, match=f"HTTP {status}"):
                await stream.receipt(1)

    run(story())


def test_a_forged_answer_to_a_submit_is_refused_and_the_message_settled(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "submit", sent=3) as (proxy, _client, stream):

            def forge(path: str, _request: bytes, answer: bytes) -> bytes:
                if path != "/v1/submit":
                    return answer
                receipt = SubmitResponse.decode(answer).receipt
                forged = dataclasses.replace(receipt, mmr_root=MmrRoot(bytes(32)))
                return SubmitResponse(receipt=forged).encode()

            proxy.lie = forge
            with pytest.raises(SignatureError):
                await stream.send("once")
            proxy.lie = honest
            (receipt,) = (await stream.settle()).receipts
            assert receipt.stream_seq == 4
            assert [m.text async for m in stream.read()] == ["1", "2", "3", "once"]

    run(story())


def test_the_receipt_of_another_message_does_not_answer_a_submit(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "other receipt", sent=3) as (proxy, _client, stream):
            other = await stream.receipt(2)
            proxy.lie = lambda path, _r, a: (
                SubmitResponse(receipt=other).encode() if path == "/v1/submit" else a
            )
            with pytest.raises(Misbehaved):
                await stream.send("mine")
            proxy.lie = honest
            assert len((await stream.settle()).receipts) == 1

    run(story())


def test_false_receipts_proofs_and_consistency_proofs_are_refused(hub: HubProcess) -> None:
    def other_receipt(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/receipt":
            return answer
        receipt = ReceiptResponse.decode(answer).receipt
        return ReceiptResponse(receipt=dataclasses.replace(receipt, leaf_hash=LeafHash(bytes(32)))).encode()

    def other_proof(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/proof":
            return answer
        proof = ProofResponse.decode(answer).mmr_proof
        peaks = (NodeHash(bytes(32)), *proof.peaks_after[1:])
        return ProofResponse(mmr_proof=dataclasses.replace(proof, peaks_after=peaks)).encode()

    def other_consistency(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/consistency":
            return answer
        proof = ConsistencyResponse.decode(answer).mmr_consistency
        path_ = (NodeHash(bytes(32)), *proof.path[1:])
        return ConsistencyResponse(mmr_consistency=dataclasses.replace(proof, path=path_)).encode()

    async def story() -> None:
        for number, lie in enumerate((other_receipt, other_proof, other_consistency)):
            async with talking(hub, f"proofs/{number}") as (proxy, _client, stream):
                _ = [m async for m in stream.read()]
                proxy.lie = lie
                with pytest.raises(VerificationError):
                    await stream.receipt(11)
                with pytest.raises(VerificationError):
                    await stream.proof(11, 19)
                with pytest.raises(VerificationError):
                    await stream.consistency(5, 11)

    run(story())


def test_a_live_stream_ends_before_a_false_entry(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "live lie") as (proxy, _client, stream):

            def cut_out(path: str, _request: bytes, answer: bytes) -> bytes:
                return (
                    answer[: len(answer) // 2] + answer[len(answer) // 2 + 1 :]
                    if "/v1/stream/" in path
                    else answer
                )

            async def read_live() -> None:
                async for message in stream.follow():
                    assert message.text == str(message.stream_seq)

            proxy.lie = cut_out
            with pytest.raises(VerificationError):
                await read_live()

    run(story())


def test_another_identity_in_the_status_is_refused(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "other") as other:
            async with connect(other.url, ALICE, trust=other.hub_id) as elsewhere:
                theirs = await elsewhere.status()
        async with between(hub.url) as proxy:

            def impersonate(path: str, _request: bytes, answer: bytes) -> bytes:
                if path != "/v1/status":
                    return answer
                own = Status.decode(answer)
                return dataclasses.replace(own, identity_sig=theirs.identity_sig).encode()

            proxy.lie = impersonate
            with pytest.raises((IdentityError, SignatureError)):
                async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK):
                    pass

    run(story())


def test_another_profile_in_the_status_is_refused(hub: HubProcess, tmp_path: Path) -> None:
    """Labels follow from the profile's epoch_sec: with another value every stream would seem empty."""

    def rotating(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/status":
            return answer
        return dataclasses.replace(Status.decode(answer), profile=PROFILES["rotating"]).encode()

    async def story() -> None:
        async with talking(hub, "profile", sent=3, state=tmp_path) as (proxy, client, stream):
            assert len(await _texts(stream)) == 3
            proxy.lie = rotating
            with pytest.raises(IdentityError, match="profile"):
                await client.status()
            with pytest.raises(IdentityError, match="profile"):
                async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path):
                    pass
            assert len(await _texts(stream)) == 3

    run(story())


def test_a_status_with_a_wrong_time_deletes_no_token_and_no_key(tmp_path: Path) -> None:
    state = tmp_path / "state"

    def next_century(path: str, _request: bytes, answer: bytes) -> bytes:
        if path != "/v1/status":
            return answer
        status = Status.decode(answer)
        return dataclasses.replace(status, hub_ts=UnixTime(status.hub_ts + 10**9)).encode()

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=state) as client:
            await client.authorize(token_for(ALICE.client_id, "own"))
            await client.authorize(token_for(await client.stream("drawn").client_id(), "drawn"))
            for name in ("own", "drawn"):
                await client.stream(name).send("before")
        async with between(hub.url) as proxy:
            proxy.lie = next_century
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=state) as client:
                await client.authorize(token_for(ALICE.client_id, "elsewhere"))
                for name in ("own", "drawn"):
                    with pytest.raises(CapRefused):  # by that time, the client_ids are worn out
                        await client.stream(name).send("meanwhile")
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=state) as client:
            for name in ("own", "drawn", "elsewhere"):
                await client.stream(name).send("after")

    with serving(tmp_path / "hub", gated=True) as hub:
        run(story())


# --- a hub that signs two histories


@asynccontextmanager
async def forked(tmp_path: Path, name: str) -> AsyncIterator[tuple[HubProcess, HubProcess]]:
    """Start two hubs with one key whose logs differ after ten messages: one has "a", the other "b"."""
    with serving(tmp_path / "one") as one:
        async with connect(one.url, ALICE, trust=one.hub_id) as client:
            async for _ in client.stream(name).send_many(["common"] * 10):
                pass
        one.stop()
        with serving(tmp_path / "two", twin_of=one) as two:
            one.start()
            for hub, text in ((one, "a"), (two, "b")):
                async with connect(hub.url, ALICE, trust=one.hub_id) as client:
                    async for _ in client.stream(name).send_many([text] * 10):
                        pass
            yield one, two


@pytest.mark.parametrize("step", ["read", "follow", "send", "head", "receipt", "checkpoint", "admin", "all"])
def test_a_forked_hub_is_convicted_by_evidence(tmp_path: Path, step: str) -> None:
    async def act(stream: Stream) -> None:
        match step:
            case "read":
                assert [m.text async for m in stream.read(9)] == []
            case "follow":
                async for message in stream.follow(1):
                    assert message.text == "common"
            case "send":
                await stream.send("mine")
            case "head":
                await stream.head()
            case "receipt":
                await stream.receipt(18)
            case "checkpoint":
                await stream.checkpoint()
            case "admin":
                await stream.hub.admin(ADMIN).checkpoint(stream.label())
            case "all":
                await stream.hub.admin(ADMIN).checkpoint()

    async def story() -> None:
        async with forked(tmp_path, "fork") as (one, two), between(one.url) as proxy:
            if step == "checkpoint":
                async with connect(two.url, ALICE, trust=two.hub_id) as admin:
                    await admin.admin(ADMIN).checkpoint()
            state = tmp_path / "state"
            async with connect(proxy.url, ALICE, trust=one.hub_id, state=state, retry=QUICK) as client:
                texts = [m.text async for m in client.stream("fork").read(1, 15)]
                assert texts == ["common"] * 10 + ["a"] * 5
                proxy.upstream = two.url
                with pytest.raises(DivergenceError) as caught:
                    await act(client.stream("fork"))
                _check_evidence(caught.value, client.identity)
                _check_saved(caught.value, state)
                await client.report_equivocation(_evidence(caught.value))
            # and after a restart, from what was written down
            async with connect(proxy.url, ALICE, trust=one.hub_id, state=state, retry=QUICK) as client:
                with pytest.raises(DivergenceError):
                    await client.stream("fork").head()

    run(story())


def test_a_forked_hub_that_falls_silent_has_still_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub shows another head than before, and then does not answer until the deadline."""
    monkeypatch.setitem(HubConnection.ask.__kwdefaults__, "least", 0.5)
    asked: list[str] = []

    async def silence(path: str) -> None:
        if path == "/v1/receipt":
            asked.append(path)
            await asyncio.sleep(2 if len(asked) > 1 else 0)

    async def story() -> None:
        async with forked(tmp_path, "silent") as (one, two), between(one.url) as proxy:
            state = tmp_path / "state"
            async with connect(proxy.url, ALICE, trust=one.hub_id, state=state) as client:
                assert len([m async for m in client.stream("silent").read(1, 15)]) == 15
            proxy.upstream, proxy.after = two.url, silence
            impatient = Retry(deadline=0.5)
            async with connect(proxy.url, ALICE, trust=one.hub_id, state=state, retry=impatient) as client:
                with pytest.raises(DivergenceError):
                    await client.stream("silent").head()

    run(story())


def _evidence(error: DivergenceError) -> Equivocation:
    assert isinstance(error, Diverged)
    assert error.equivocation is not None
    return error.equivocation


def _check_evidence(error: DivergenceError, identity: object) -> None:
    evidence = _evidence(error)
    verify_evidence(evidence, identity)  # type: ignore[arg-type]
    assert Receipt.decode(error.held).stream_seq == 15
    assert evidence.first.receipt.stream_seq == evidence.second.receipt.stream_seq


def _check_saved(error: DivergenceError, state: Path) -> None:
    """The evidence is in the client's state folder, and the error says where."""
    assert isinstance(error, Diverged)
    assert error.folder is not None
    assert error.folder.is_relative_to(state)
    assert str(error.folder) in str(error)
    saved = {path.name: path.read_bytes() for path in error.folder.iterdir()}
    assert saved.pop("equivocation.cbor") == _evidence(error).encode()
    assert saved == {"held.cbor": error.held, "shown.cbor": error.shown}
    assert {path.stat().st_mode & 0o777 for path in error.folder.iterdir()} == {0o600}


def test_a_hub_that_lost_an_acknowledged_message_is_detected(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "one") as one:
            async with connect(one.url, ALICE, trust=one.hub_id) as client:
                await client.stream("memory").send("kept")
            one.stop()
            with serving(tmp_path / "two", twin_of=one) as two:
                one.start()
                state = tmp_path / "state"
                async with connect(one.url, ALICE, trust=one.hub_id, state=state) as client:
                    await client.stream("memory").send("forgotten")
                async with connect(two.url, ALICE, trust=one.hub_id, state=state, retry=QUICK) as client:
                    with pytest.raises(Diverged, match="has no such entry any more") as caught:
                        await client.stream("memory").send("next")
                    with pytest.raises(Diverged) as again:
                        _ = [m async for m in client.stream("memory").read()]
                assert caught.value.folder is not None
                assert (caught.value.folder / "held.cbor").read_bytes() == caught.value.held
                assert again.value.folder == caught.value.folder, "the same evidence is kept once"
                async with connect(one.url, ALICE, trust=one.hub_id, retry=QUICK) as client:
                    stream = client.stream("memory")
                    assert (await stream.head()).stream_seq == 2  # type: ignore[union-attr]
                    client.connection.api.transport = HttpTransport(two.url, tls=None, timeouts=Timeouts())
                    with pytest.raises(Diverged, match="save the evidence that this error carries"):
                        await stream.receipt(2)

    run(story())


def test_evidence_that_cannot_be_written_is_still_in_the_error(tmp_path: Path) -> None:
    class Full(MemoryStateStore):
        def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
            raise StateError(f"{hub.hex()}: no space left for {len(files)} files")

    async def story() -> None:
        async with (
            forked(tmp_path, "full") as (one, two),
            between(one.url) as proxy,
            connect(proxy.url, ALICE, trust=one.hub_id, state=Full(), retry=QUICK) as client,
        ):
            assert len([m async for m in client.stream("full").read(1, 15)]) == 15
            proxy.upstream = two.url
            with pytest.raises(Diverged, match="no space left for 3 files") as caught:
                await client.stream("full").head()
            _check_evidence(caught.value, client.identity)

    run(story())


@pytest.mark.parametrize("step", ["receipt", "proof", "consistency", "checkpoint"])
def test_a_shrunken_log_is_a_divergence_and_not_merely_not_found(tmp_path: Path, step: str) -> None:
    async def story() -> None:
        with serving(tmp_path / "one") as one:
            async with connect(one.url, ALICE, trust=one.hub_id) as client:
                async for _ in client.stream("shrunk").send_many(["kept"] * 3):
                    pass
                await client.admin(ADMIN).checkpoint()
            one.stop()
            with serving(tmp_path / "two", twin_of=one) as two:
                one.start()
                state = tmp_path / "state"
                async with connect(one.url, ALICE, trust=one.hub_id, state=state) as client:
                    last = await client.stream("shrunk").send("forgotten")
                async with connect(two.url, ALICE, trust=one.hub_id, state=state, retry=QUICK) as client:
                    stream = client.stream("shrunk")
                    steps = {
                        "receipt": lambda: stream.receipt(1),
                        "proof": lambda: stream.proof(1, 3),
                        "consistency": lambda: stream.consistency(1, 3),
                        "checkpoint": stream.checkpoint,
                    }
                    with pytest.raises(Diverged, match="has no such entry any more") as caught:
                        await steps[step]()
                    assert Receipt.decode(caught.value.held) == last

    run(story())


def test_a_head_before_known_entries_is_refused(hub: HubProcess) -> None:
    async def story() -> None:
        async with talking(hub, "older head") as (proxy, client, stream):
            _ = await _texts(stream)
            older = await client.connection.api.receipt(stream.label(), StreamSeq(12))

            def stale(path: str, request: bytes, answer: bytes) -> bytes:
                asked = path == "/v1/receipt" and ReceiptRequest.decode(request).stream_seq == 0
                return ReceiptResponse(receipt=older).encode() if asked else answer

            proxy.lie = stale
            with pytest.raises(Misbehaved, match="newest entry is 12, but showed 20 entries before"):
                await stream.head()

    run(story())


def test_the_hub_cannot_deny_a_known_entry(hub: HubProcess) -> None:
    def deny(path: str, request: bytes, answer: bytes) -> bytes | web.Response:
        if path != "/v1/receipt" or ReceiptRequest.decode(request).stream_seq != 5:
            return answer
        gone = ErrorEnvelope(code=Code.NOT_FOUND, message="no entry 5")
        return web.Response(status=404, body=gone.encode())

    async def story() -> None:
        async with talking(hub, "denied") as (proxy, _client, stream):
            _ = await _texts(stream)
            proxy.lie = deny
            with pytest.raises(
                Misbehaved, match="the hub says it has no entry 5, but showed 20 entries before"
            ):
                await stream.receipt(5)
            with pytest.raises(NotFound):
                await stream.receipt(21)

    run(story())


def test_items_of_a_live_stream_are_framed_wherever_they_are_cut(hub: HubProcess) -> None:
    async def story() -> bytes:
        async with talking(hub, "framing", sent=5) as (_proxy, client, stream):
            entries = await client.log_reader().page(
                stream.label(), type((await stream.receipt(1)).stream_seq)(1), 5
            )
            return b"".join(
                StreamItem(stream_seq=e.stream_seq, msg=e.msg, receipt=e.receipt).encode() for e in entries
            )

    data = run(story())
    for size in (1, 7, 64, 1_000, len(data)):
        framer = Framer(10_000)
        items = [item for at in range(0, len(data), size) for item in framer.feed(data[at : at + size])]
        assert b"".join(items) == data
        assert len(items) == 5
    with pytest.raises(Misbehaved):
        Framer(100).feed(data[:600])
    with pytest.raises(Misbehaved, match="indefinite"):
        Framer(100).feed(b"\x9f")
