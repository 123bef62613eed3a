"""The client with hubs of other settings: epochs, proof of work, bounds, anchors; and retries."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web

from veen_core import PROFILES
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError
from veen_core.ids import Epoch, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import Secrets
from veen_core.limits import Limits
from veen_core.rejection import Code
from veen_hub.client import (
    Delivery,
    Denied,
    FileStateStore,
    Hub,
    Message,
    Misbehaved,
    NotFound,
    OutOfTime,
    RateLimited,
    Refused,
    Retry,
    TooLarge,
    TooMuchWork,
    Unavailable,
    Unreachable,
    connect,
)
from veen_hub.client.errors import refusal
from veen_hub.client.wire.retry import is_retryable
from veen_hub.ops.anchors import AnchoredRoot, AnchorError
from veen_hub.ops.config import AnchorSettings
from veen_hub.ops.hub_anchor import hub_anchor

from .certificates import Certificates
from .client_fixtures import QUICK, person, run
from .client_proxy import between, honest
from .conftest import StartHub
from .people import ADMIN, BORN
from .serving import RunningHub, SetClock

ALICE = person("alice")


def token(*streams: str, ttl: int = 3_600) -> object:
    from veen_core.cap import mint  # noqa: PLC0415
    from veen_core.stream import stream_id  # noqa: PLC0415

    return mint(ADMIN, ALICE.client_id, [stream_id(name) for name in streams], ttl)


# --- epochs (§12)


def test_messages_go_to_the_label_of_the_hubs_epoch(start_hub: StartHub, tmp_path: Path) -> None:
    clock = SetClock()
    hub = start_hub(profile=PROFILES["rotating"], clock=clock)
    first = Epoch(BORN // 60)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            await client.authorize(token("turning"))  # type: ignore[arg-type]
            stream = client.stream("turning")
            one = await stream.send("one")
            assert one.label == stream.label(first)
            clock.time += 60
            await stream.send("two")  # still within the skew; its receipt tells the time
            three = await stream.send("three")
            assert three.label == stream.label(Epoch(first + 1))
            clock.time += 300
            four = await stream.send("four")  # refused for its epoch, then sent under the new one
            assert four.label == stream.label(Epoch(first + 6))
            assert [r.label async for r in stream.send_many(["five"] * 3)] == [four.label] * 3
            clock.time += 300
            (six,) = [r async for r in stream.send_many(["six"])]
            assert six.label == stream.label(Epoch(first + 11))
            clock.time += 300
            assert (await stream.send("seven", attachments=[b"x"])).stream_seq == 1
            assert [m.text async for m in stream.read(epoch=first)] == ["one", "two"]
            used = {m.client_id async for m in stream.read(epoch=Epoch(first + 6))}
            assert used == {ALICE.client_id}  # the one that the token names

    run(story())


def test_follow_continues_across_epochs(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(profile=PROFILES["rotating"], clock=clock, gating=False)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            stream, found = client.stream("turning"), []
            done = asyncio.Event()

            async def follow() -> None:
                async for message in stream.follow():
                    found.append(message.text)
                    if len(found) == 4:
                        done.set()

            following = asyncio.create_task(follow())
            ids = set()
            for n in range(4):
                receipt = await stream.send(str(n))
                (message,) = [
                    m async for m in stream.read(receipt.stream_seq, epoch=client.epoch_at(receipt.hub_ts))
                ] or [None]
                if isinstance(message, Message):
                    ids.add(message.client_id)
                if n % 2:
                    clock.time += 60
            await done.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert sorted(found) == ["0", "1", "2", "3"]
            assert len(ids) >= 1

    run(story())


def test_a_message_pending_since_a_past_epoch_is_settled(start_hub: StartHub, tmp_path: Path) -> None:
    clock = SetClock(BORN)
    hub = start_hub(profile=PROFILES["rotating"], clock=clock, gating=False)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            stream = client.stream("left open")
            await stream.send("one")
            log = await client.log(stream.label())
            outbox = await client.outbox(stream.label())
            prepared = await outbox._prepare([stream._draft("two", None, None, None, None)], None, None)
            log.client.submit_all(prepared.sealed)  # as far as a crash might have come
            await log.state.save(durable=True)
            first = client.epoch_at(UnixTime(clock.time))
        clock.time += 60
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            await client.stream("left open").send("three")
            assert [m.text async for m in client.stream("left open").read(epoch=first)] == ["one", "two"]

    run(story())


@pytest.mark.parametrize("lost", ["the message", "its answer"])
def test_a_pending_message_whose_window_has_passed_is_found_or_dropped(
    start_hub: StartHub, tmp_path: Path, lost: str
) -> None:
    """The hub is open and would accept a message for any label of an unknown stream (H4)."""
    clock = SetClock(BORN)
    hub = start_hub(profile=PROFILES["rotating"], clock=clock, gating=False)
    impatient = Retry(max_attempts=1)

    async def cut(path: str) -> web.Response | None:
        return web.Response(status=503) if path == "/v1/submit" else None

    async def story() -> None:
        async with between(hub.url) as proxy:
            options = {"trust": hub.hub_id, "state": tmp_path, "retry": impatient}
            async with connect(proxy.url, ALICE, **options) as client:  # type: ignore[arg-type]
                stream, first = client.stream("late"), client.epoch_at(UnixTime(BORN))
                await stream.send("one")
                if lost == "the message":
                    proxy.before = cut
                else:
                    proxy.lie = lambda path, _r, a: None if path == "/v1/submit" else a
                with pytest.raises((Unreachable, Unavailable)):
                    await stream.send("two")
            proxy.before, proxy.lie = None, honest
            clock.time += 600
            async with connect(proxy.url, ALICE, **options) as client:  # type: ignore[arg-type]
                stream = client.stream("late")
                delivery = await stream.settle()
                if lost == "the message":
                    assert delivery.receipts == []
                    assert isinstance(delivery.failure, OutOfTime)
                    assert "1 message did not reach the hub" in str(delivery.failure)
                else:
                    assert [r.stream_seq for r in delivery.receipts] == [2]
                    assert delivery.failure is None
                assert (await stream.settle()) == Delivery()
                assert (await stream.send("three")).stream_seq == 1
                found = [m.text async for m in stream.read(epoch=first)]
                assert found == (["one"] if lost == "the message" else ["one", "two"])
                assert not (await client.log(stream.label(first))).client.state.pending

    run(story())


def test_a_message_pending_when_the_epoch_ends_is_settled_by_the_next_operation(
    start_hub: StartHub, tmp_path: Path
) -> None:
    clock = SetClock(BORN)
    hub = start_hub(profile=PROFILES["rotating"], clock=clock, gating=False)

    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(
                proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=Retry(max_attempts=1)
            ) as client,
        ):
            stream, first = client.stream("turned"), client.epoch_at(UnixTime(BORN))
            proxy.lie = lambda path, _r, a: None if path == "/v1/submit" else a
            with pytest.raises(Unreachable):
                await stream.send("one")
            proxy.lie = honest
            clock.time += 120
            await client.status()
            await stream.send("two")
            assert [m.text async for m in stream.read(epoch=first)] == ["one"]
            assert not (await client.log(stream.label(first))).client.state.pending

    run(story())


def test_labels_of_past_epochs_are_released(start_hub: StartHub, tmp_path: Path) -> None:
    """A connection may last for many epochs, and each label costs a lock while it is held."""
    clock = SetClock(BORN)
    hub = start_hub(profile=PROFILES["rotating"], clock=clock, gating=False)

    async def story() -> None:
        store = FileStateStore(tmp_path)
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store, retry=QUICK) as client:
            stream, labels = client.stream("long"), []
            for _ in range(5):
                labels.append((await stream.send("x")).label)
                clock.time += 180
                await client.status()
            assert set(client._logs) == {client.connection.status.control_label, labels[-1]}
            for label in labels[:-1]:
                assert store.lock(hub.hub_id, label.hex()) is not None
            assert store.lock(hub.hub_id, labels[-1].hex()) is None
            folder = tmp_path / hub.hub_id.hex()
            assert {path.stem for path in folder.glob("*.state")} == {
                "identity",
                *(label.hex() for label in labels[:-1]),
            }
        assert (folder / f"{labels[-1].hex()}.state").exists()
        assert not list(folder.glob("journal/*.journal"))

    run(story())


# --- other rules


def test_the_client_does_the_proof_of_work_that_a_hub_asks_for(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, pow__difficulty=6)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            stream = client.stream("work")
            first = await stream.send("one")
            assert [r.stream_seq async for r in stream.send_many(["x"] * 5)] == [2, 3, 4, 5, 6]
            (entry,) = await client.log_reader().page(first.label, first.stream_seq, 1)
            assert await client.log_writer().submit(entry.msg) == first

    run(story())


def test_proof_of_work_beyond_the_bound_is_not_begun(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, pow__difficulty=6)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK, max_pow_difficulty=5) as client:
            with pytest.raises(TooMuchWork, match=r"difficulty 6 .* connect with max_pow_difficulty=6"):
                await client.stream("work").send("one")
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK, max_pow_difficulty=6) as client:
            assert (await client.stream("work").send("one")).stream_seq == 1

    run(story())


def test_proof_of_work_can_be_cancelled_and_has_a_deadline(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, pow__difficulty=255)

    async def story() -> None:
        patience = Retry(deadline=1.0)
        async with connect(
            hub.url, ALICE, trust=hub.hub_id, retry=patience, max_pow_difficulty=255
        ) as client:
            stream = client.stream("work")
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await stream.send("one")
            with pytest.raises(TooMuchWork, match="was not found in time"):
                await stream.send("one")
            assert time.monotonic() - started < 30

    run(story())


def test_an_address_that_is_not_served_is_denied(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, network__deny=["127.0.0.0/8"])

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            with pytest.raises(Denied, match="PREFILTER_REJECT"):
                await client.stream("denied").send("one")

    run(story())


def test_a_hub_with_tighter_bounds_makes_the_client_rotate(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, client_keys__max_msgs_per_client_id_per_label=4)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            for n in range(10):
                assert (await client.stream("tight").send("x")).stream_seq == n + 1

    run(story())


def test_lifetimes_of_client_ids_follow_the_hubs_time(start_hub: StartHub, tmp_path: Path) -> None:
    clock = SetClock()
    hub = start_hub(gating=False, clock=clock)
    bounds = ClientBounds(max_client_id_lifetime_sec=100)

    async def story() -> None:
        for _ in range(3):
            async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, bounds=bounds) as client:
                await client.stream("lifetime").send("x")
                await client.stream("lifetime").send("x")
            clock.time += 100
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as client:
            used = [m.client_id async for m in client.stream("lifetime").read()]
        assert len(set(used)) == 3

    run(story())


def test_a_message_that_is_too_large_is_refused_before_it_leaves(start_hub: StartHub) -> None:
    hub = start_hub(gating=False)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            stream = client.stream("large")
            with pytest.raises(Exception, match="max_"):
                await stream.send(bytes(2_000_000))
            assert (await stream.send("small")).stream_seq == 1

    run(story())


def test_an_endless_attachment_is_aborted_at_the_limit(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, limits=Limits(max_attachment_bytes=10_000))

    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client,
        ):
            stream = client.stream("attached")
            await stream.send("with", attachments=[b"z" * 5_000])
            (message,) = [m async for m in stream.read()]
            proxy.lie = lambda path, _r, a: bytes(20_000) if "/attachment/" in path else a
            for _ in range(70):  # none of them keeps a place
                with pytest.raises(Misbehaved, match="longer than max_attachment_bytes"):
                    await stream.attachment(message, 0)
            proxy.lie = lambda path, _r, a: bytes(5_016) if "/attachment/" in path else a
            with pytest.raises(Misbehaved, match="other bytes than attachment"):
                await stream.attachment(message, 0)
            proxy.lie = honest
            assert await stream.attachment(message, 0) == b"z" * 5_000

    run(story())


# --- retention

SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=8)
IMPATIENT = Retry(max_attempts=2, first_delay=0.01, deadline=1.0)


async def prune(hub: RunningHub, client: Hub, clock: SetClock) -> None:
    """Write 20 entries and prune the payloads of the first 16."""
    clock.time += 1_000
    assert hub.store.settle()
    await client.status()  # what time it is
    await client.admin(ADMIN).retention()
    assert hub.store.settle()


def test_a_message_is_found_by_its_receipt_when_its_payload_was_pruned(
    start_hub: StartHub, tmp_path: Path
) -> None:
    """The answer was lost, and retention pruned the message before the client came back."""
    clock = SetClock()
    hub = start_hub(gating=False, limits=SMALL, clock=clock, retention__default={"max_age_sec": 100})

    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=IMPATIENT) as client,
        ):
            await client.stream("pruned").send("first")
            proxy.lie = lambda path, _r, a: None if path == "/v1/submit" else a
            with pytest.raises(Unreachable):
                await client.stream("pruned").send("lost")
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path / "other") as client:
            async for _ in client.stream("pruned").send_many(["x"] * 18):
                pass
            await prune(hub, client, clock)
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as client:
            stream = client.stream("pruned")
            delivery = await stream.settle()
            assert ([r.stream_seq for r in delivery.receipts], delivery.failure) == ([2], None)
            with pytest.raises(NotFound, match="17 on") as caught:
                _ = [m async for m in stream.read()]
            assert caught.value.stream_seq == 17
            assert len([m async for m in stream.read(17)]) == 4
            assert (await stream.send("next")).stream_seq == 21

    run(story())


def test_a_lost_state_is_rebuilt_from_a_pruned_log(start_hub: StartHub) -> None:
    """The token names the identity's key, whose last client_seq is known only from the log."""
    clock = SetClock()
    hub = start_hub(limits=SMALL, clock=clock, retention__default={"max_age_sec": 100})
    cap = token("pruned")

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
            async for _ in client.stream("pruned").send_many(["x"] * 20, cap=cap):  # type: ignore[arg-type]
                pass
            await prune(hub, client, clock)
        async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
            receipt = await client.stream("pruned").send("again", cap=cap)  # type: ignore[arg-type]
            assert receipt.stream_seq == 21

    run(story())


# --- anchoring in another hub


def _root(n: int) -> AnchoredRoot:
    hub_id = AnchoredRoot.codec.fields[1].kind.read(bytes(32))
    return AnchoredRoot(
        hub_id=hub_id,
        label=Label(bytes(32)),
        upto_seq=StreamSeq(n),
        mmr_root=MmrRoot(bytes(32)),
        epoch=Epoch(0),
        ts=UnixTime(BORN),
    )


def anchoring_in(hub: RunningHub, tmp_path: Path, ca: Path | None = None) -> AnchorSettings:
    secrets = Secrets(
        id_sign=SigningSeed(ALICE.signing_key.seed),
        id_dh=DhSecret(ALICE.dh_keys[0].secret),
        created_at=UnixTime(BORN),
    )
    (tmp_path / "identity").write_bytes(secrets.encode())
    (tmp_path / "token").write_bytes(token("veen/anchors").encode())  # type: ignore[attr-defined]
    return AnchorSettings(
        backend="hub",
        url=hub.url,
        pinned=hub.hub_id.hex(),
        ca=ca,
        identity=tmp_path / "identity",
        token=tmp_path / "token",
    )


def test_roots_are_anchored_in_another_hubs_stream(start_hub: StartHub, tmp_path: Path) -> None:
    hub = start_hub("anchoring")
    settings = anchoring_in(hub, tmp_path)

    async def story() -> None:
        anchor = hub_anchor(settings)
        first, second = await anchor.publish(_root(1)), await anchor.publish(_root(2))
        assert await anchor.verify(_root(1), first)
        assert await anchor.verify(_root(2), second)
        assert not await anchor.verify(_root(2), first)
        assert not await anchor.verify(_root(1), b"rubbish")
        hub.stop()
        with pytest.raises(AnchorError, match="anchoring hub"):
            await anchor.publish(_root(3))

    run(story())
    with pytest.raises(ConfigError, match=r"anchor\.identity"):
        hub_anchor(AnchorSettings(backend="hub", url=hub.url, pinned="00", identity=tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"anchor\.pinned"):
        hub_anchor(AnchorSettings(backend="hub", url=hub.url))


def test_an_anchoring_hub_with_a_private_certificate_is_trusted_with_anchor_ca(
    start_hub: StartHub, tmp_path: Path, certificates: Certificates
) -> None:
    cert, key = certificates.hub
    hub = start_hub("anchoring", tls={"cert": str(cert), "key": str(key)})

    async def story() -> None:
        anchor = hub_anchor(anchoring_in(hub, tmp_path, certificates.authority))
        assert await anchor.verify(_root(1), await anchor.publish(_root(1)))
        with pytest.raises(AnchorError, match="anchoring hub"):
            await hub_anchor(anchoring_in(hub, tmp_path)).publish(_root(2))

    run(story())
    with pytest.raises(ConfigError, match=r"anchor\.ca"):
        hub_anchor(anchoring_in(hub, tmp_path, tmp_path / "nothing"))


# --- patience


def test_delays_grow_with_jitter_up_to_the_deadline() -> None:
    attempts = Retry(max_attempts=6, first_delay=0.1, max_delay=0.5, deadline=100, jitter=lambda: 1.0).begin()
    assert [attempts.delay() for _ in range(6)] == [0.1, 0.2, 0.4, 0.5, 0.5, None]
    attempts.renew()
    assert attempts.delay(retry_after=3) == pytest.approx(3.1 + 1.5)
    early = Retry(first_delay=0.1, deadline=100, jitter=lambda: 0.0).begin()
    assert early.delay(retry_after=3) == pytest.approx(3.05), "never before the hub's time"
    late = Retry(first_delay=0.1, deadline=3.5, jitter=lambda: 1.0).begin().delay(retry_after=3)
    assert late is not None
    assert 3.1 <= late <= 3.5, "spread no further than the deadline"
    assert Retry(jitter=lambda: 0.0).begin().delay() == 0.05
    assert Retry(deadline=2).begin().delay(retry_after=3) is None
    last = Retry(first_delay=1.0, deadline=0.5, jitter=lambda: 1.0).begin().delay()
    assert last is not None
    assert 0.4 < last <= 0.5
    assert Retry(deadline=0.0).begin().delay() is None


def test_every_code_has_its_exception() -> None:
    from veen_core.api import ErrorDetail, ErrorEnvelope  # noqa: PLC0415

    for code in Code:
        made = refusal(
            ErrorEnvelope(
                code=code, message="no", detail=ErrorDetail(detail_enum="X"), retry_after=2, request_id="r"
            )
        )
        assert type(made) is not Refused
        assert (made.code, made.detail_enum, made.retry_after, made.request_id) == (code, "X", 2, "r")
        assert str(made) == f"{code.value} / X: no"
    assert is_retryable(RateLimited(Code.RATE, ""))
    assert is_retryable(Unavailable(Code.UNAVAILABLE, ""))
    assert is_retryable(Unreachable(""))
    assert not is_retryable(Unreachable("", retryable=False))
    assert not is_retryable(OutOfTime(Code.TIME, ""))
    assert not is_retryable(TooLarge(Code.SIZE, ""))
