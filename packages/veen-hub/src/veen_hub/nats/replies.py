"""Replies of the API as NATS messages."""

from __future__ import annotations

from collections.abc import Iterator

from veen_hub.api.reply import Reply
from veen_hub.nats.parts import PART, PARTS, STATUS

NatsMessage = tuple[dict[str, str], bytes]
"""Headers and payload of one message."""


def split_reply(reply: Reply, size: int) -> Iterator[NatsMessage]:
    """Yield the messages of a reply; none has more than ``size`` bytes of its body."""
    head = {STATUS: str(reply.status), "Content-Type": reply.content_type, **reply.headers}
    if len(reply.body) <= size:
        yield head, reply.body
        return
    starts = range(0, len(reply.body), size)
    head[PARTS] = str(len(starts))
    for number, start in enumerate(starts, 1):
        yield head if number == 1 else {PART: str(number)}, reply.body[start : start + size]
