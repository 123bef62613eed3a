"""A reply as NATS messages: its head in headers, its body in parts that fit the server's ``max_payload``.

A lost part is noticed: the first message says how many there are, and each has its number. Parts of a live
stream have numbers too; their count is open, and a last message without a body ends the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from veen_core.errors import DecodeError

STATUS: Final = "VEEN-Status"
PARTS: Final = "VEEN-Parts"
"""Number of messages of a reply, on its first message if there are several; 0: a live stream."""
PART: Final = "VEEN-Part"
"""Number of a message of a reply; the first message has number 1 and no such header."""
END: Final = "VEEN-End"
"""Header of the last message of a live stream."""
FLOW_SUBJECT: Final = "VEEN-Flow"
"""Header of a live stream's first message: the subject for the follower's progress reports."""
HEADER_RESERVE_BYTES: Final = 2_048
"""Bytes of a message that are left for its headers; the server counts them too."""
MIN_PAYLOAD: Final = 8_192
"""Smallest ``max_payload`` of a NATS server that a hub can serve."""

ALIVE_SEC: Final = 10.0
"""Longest time between two messages of a follower on its flow subject."""
MAX_UNREAD_PARTS: Final = 64
MAX_UNREAD_BYTES: Final = 4 * 1_048_576
"""Parts and bytes of a live stream that its follower has not consumed; the hub sends no more."""
END_WORD: Final = b"end"
"""Sent on the flow subject by a follower that ends the stream."""


def part_size(max_payload: int) -> int:
    """Return how many bytes of a body fit into one message."""
    return max(MIN_PAYLOAD, max_payload) - HEADER_RESERVE_BYTES


def number_in(headers: Mapping[str, str], name: str) -> int:
    """Return a number from a header; raises ``DecodeError``."""
    text = headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise DecodeError(f"header {name} is not a number")
    return int(text)
