"""Regular expressions for canonical arrays of plain fields: a fast path for decoding (core §3.1).

Every CBOR item has one canonical form, and its head gives its length. If the bytes are a canonical item for
each field, one after the other, the whole array is canonical, and need not be encoded again to prove it.
A pattern never refuses: bytes that do not match go to the general codec, which names the error.

Measured on two busy cores, 15 runs, processor time, fastest run to median: a MSG of 1 KiB decodes in 6 to 10
instead of 11 to 14 µs, a RECEIPT in 4 to 7 instead of 8 to 10 µs. The end of a MSG in a batch is found in
1.5 to 2 instead of 6 to 7 µs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from veen_core import cbor
from veen_core.kinds import Bytes, Fixed, Kind, Nullable, OneOf, Uint

Convert: TypeAlias = Callable[[Any], Any]
"""Turns the bytes that a field's group matched into its value."""

_UINT: Final = rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00).{2}|\x1a(?!\x00{2}).{4}|\x1b(?!\x00{4}).{8})"
_BSTR_HEAD: Final = rb"([\x40-\x57]|\x58[\x18-\xff]|\x59(?!\x00).{2}|\x5a(?!\x00{2}).{4})"
_ARGUMENT_BITS: Final = 0x1F
"""The low bits of a head's first byte: its number, or how many bytes of the number follow."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of one array: split at each byte string, whose length is known once its head is read."""

    first: re.Pattern[bytes]
    rest: tuple[re.Pattern[bytes], ...]
    converts: tuple[Convert, ...]

    def groups(self, data: bytes) -> Sequence[Any] | None:
        """Return the bytes of each field if ``data`` is the array in canonical form, else None."""
        if (match := self.first.match(data)) is None:
            return None
        groups, at = match.groups(), match.end()
        for part in self.rest:
            end = at + _uint(groups[-1])
            if end > len(data) or (match := part.match(data, end)) is None:
                return None
            groups, at = (*groups[:-1], data[at:end], *match.groups()), match.end()
        return groups if at == len(data) else None

    def end(self, data: bytes | bytearray, start: int) -> int | None:
        """Return where the array that begins at ``start`` ends, or None if it is not in canonical form."""
        if (match := self.first.match(data, start)) is None:
            return None
        for part in self.rest:
            end = match.end() + _uint(match[match.re.groups])
            if end > len(data) or (match := part.match(data, end)) is None:
                return None
        return match.end()


def pattern_of(kinds: Iterable[Kind]) -> Pattern | None:
    """Return the pattern of an array of these kinds; None if one is neither a number nor a byte string."""
    parts, converts = [bytearray()], list[Convert]()
    for kind in (fields := tuple(kinds)):
        if (piece := _piece(kind)) is None:
            return None
        parts[-1] += piece[0]
        converts.append(piece[1])
        if isinstance(kind, Bytes):
            parts.append(bytearray())
    parts[0][:0] = re.escape(cbor.array_head(len(fields)))
    first, *rest = (re.compile(bytes(part), re.DOTALL) for part in parts)
    return Pattern(first, tuple(rest), tuple(converts))


def _piece(kind: Kind) -> tuple[bytes, Convert] | None:
    match kind:
        case Uint():
            return _UINT, _uint
        case Fixed():
            head = cbor.encode(bytes(kind.size))[: -kind.size]
            return re.escape(head) + b"(.{%d})" % kind.size, partial(bytes.__new__, kind.type)
        case OneOf():
            words = {cbor.encode(value): value for value in kind.allowed}
            return b"(%b)" % b"|".join(map(re.escape, words)), words.__getitem__
        case Bytes():
            return _BSTR_HEAD, bytes
        case Nullable(inner) if not isinstance(inner, Bytes) and (piece := _piece(inner)) is not None:
            return b"(?:\xf6|%b)" % piece[0], partial(_unless_null, piece[1])
    return None


def _uint(head: bytes) -> int:
    """Return the number in a head: its low bits, or the bytes after the first."""
    return int.from_bytes(head[1:], "big") if len(head) > 1 else head[0] & _ARGUMENT_BITS


def _unless_null(convert: Convert, group: bytes | None) -> Any:
    return None if group is None else convert(group)
