"""A sender that also follows: it waits for its follower where that saves proofs, and asks for no proof."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest

from veen_hub.client import Stream, connect
from veen_hub.client.label.followers import MAX_ENTRIES_BEHIND, Followers
from veen_hub.client.sending.single_sends import MAX_BATCH_WHILE_FOLLOWING

from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_proxy import between


async def is_waiting(followers: Followers, seq: int) -> bool:
    """Return whether a sender of entry ``seq`` waits; it is ended then."""
    task = asyncio.create_task(followers.reached(seq))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waits = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return waits


def test_a_sender_waits_for_a_follower_that_waits_for_entries() -> None:
    async def work() -> None:
        followers = Followers()
        assert not await is_waiting(followers, 5), "nobody follows"
        with followers.follower() as one:
            assert not await is_waiting(followers, 5), "it has read nothing yet"
            followers.advance(one, 4)
            assert await is_waiting(followers, 5)
            assert not await is_waiting(followers, 4), "it has read this entry"
            assert not await is_waiting(followers, 5 + MAX_ENTRIES_BEHIND), "it is far behind"
            followers.pause(one)
            assert not await is_waiting(followers, 5), "its consumer may be the sender"
            followers.advance(one, 4)
            waiter = asyncio.create_task(followers.reached(5))
            await asyncio.sleep(0)
            followers.advance(one, 5)
            await asyncio.wait_for(waiter, 5)
        assert not await is_waiting(followers, 6), "it has ended"

    asyncio.run(work())


def test_a_sender_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veen_hub.client.label.followers.MAX_WAIT_SECONDS", 0.01)

    async def work() -> None:
        followers = Followers()
        with followers.follower() as one:
            followers.advance(one, 4)
            await asyncio.wait_for(followers.reached(5), 5)

    asyncio.run(work())


def test_a_stream_that_is_followed_is_sent_to_in_small_batches(tmp_path: Path) -> None:
    async def largest(stream: Stream) -> int:
        await stream.send("first")
        largest = 0
        sending = asyncio.gather(*(stream.send(f"{n}") for n in range(2 * MAX_BATCH_WHILE_FOLLOWING)))
        log = await stream.hub.log(stream.label())
        while not sending.done():
            largest = max(largest, len(log.client.state.pending))
            await asyncio.sleep(0.001)
        await sending
        return largest

    async def story(hub_process: HubProcess) -> None:
        async with connect(hub_process.url, person("alice"), trust=hub_process.hub_id) as hub:
            assert await largest(hub.stream("sent")) > MAX_BATCH_WHILE_FOLLOWING
            stream = hub.stream("followed")
            await stream.send("zero")
            async with aclosing(stream.follow()) as followed:
                await anext(followed)
                assert 1 < await largest(stream) <= MAX_BATCH_WHILE_FOLLOWING

    with serving(tmp_path) as hub:
        run(story(hub))


def test_who_sends_to_a_stream_and_follows_it_asks_for_no_proof(tmp_path: Path) -> None:
    """Both sides of a call do this, one message after the other."""
    texts = [f"message {n}" for n in range(8)]

    async def story(hub_process: HubProcess) -> None:
        async with (
            between(hub_process.url) as proxy,
            connect(proxy.url, person("alice"), trust=hub_process.hub_id, retry=QUICK) as hub,
        ):
            stream = hub.stream("calls")
            await stream.send("first")
            followed = aiter(stream.follow(from_seq=2))
            for text in texts:
                await stream.send(text)
                assert (await anext(followed)).text == text
            asked = Counter(proxy.requests)
            assert asked["/v1/submit"] >= len(texts)
            assert not [path for path in asked if "proof" in path or "consistency" in path], asked

    with serving(tmp_path) as hub:
        run(story(hub))
