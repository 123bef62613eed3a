"""Requests of tests over other transports than HTTP/1.1, and their answers in a form that can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .serving import Answer

Ask = Callable[[str, str, bytes | None, Mapping[str, str] | None], Answer]
"""One request to one hub: method, path, body and headers."""


def comparable(answer: Answer) -> tuple[Any, ...]:
    """The bytes of an answer, but for the number of its request."""
    kept = {name: answer.headers.get(name) for name in ("content-type", "retry-after", "veen-next")}
    if answer.status == 200:
        return answer.status, kept, answer.body
    return answer.status, kept, dataclasses.replace(answer.error, request_id=None).encode()
