"""A sender waits for a follower that is about to read its message, and for no other."""

from __future__ import annotations

import asyncio

import pytest

from veen_hub.client.label.followers import MAX_ENTRIES_BEHIND, Followers


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
