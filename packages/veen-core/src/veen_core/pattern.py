"""The canonical bytes of an array of plain fields, as a pattern: what matches is read in one go (§3.1).

An item of CBOR tells its own length, and has one canonical form. So bytes that are, one after the other, a
canonical item of each field's kind are that array, and nothing has to be encoded again to see it. A pattern
only ever says yes: whatever it does not match goes to the codec, which says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from veen_core import cbor
from veen_core.kinds import Bytes, Fixed, Kind, Nullable, OneOf, Uint

Take: TypeAlias = Callable[[Any], Any]
"""From what a field's group matched to its value."""

_UINT: Final = rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00).{2}|\x1a(?!\x00{2}).{4}|\x1b(?!\x00{4}).{8})"
_BSTR_HEAD: Final = rb"([\x40-\x57]|\x58[\x18-\xff]|\x59(?!\x00).{2}|\x5a(?!\x00{2}).{4})"
_MAJOR: Final = 0x1F
"""A head's low bits: the length, or how many bytes of it follow."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Of an array's bytes: in parts, since how long a string is only its head tells, where a part ends."""

    first: re.Pattern[bytes]
    rest: tuple[re.Pattern[bytes], ...]
    takes: tuple[Take, ...]

    def groups(self, data: bytes) -> Sequence[Any] | None:
        """What each field's ``take`` is to have, if ``data`` is such an array in canonical form."""
        if (match := self.first.match(data)) is None:
            return None
        groups, at = match.groups(), match.end()
        for part in self.rest:
            end = at + _uint(groups[-1])
            if (match := part.match(data, end)) is None:
                return None
            groups, at = (*groups[:-1], data[at:end], *match.groups()), match.end()
        return groups if at == len(data) else None

    def end(self, data: bytes, start: int) -> int | None:
        """Where one that begins at ``start`` ends: only a head before the end of a part is looked at."""
        if (match := self.first.match(data, start)) is None:
            return None
        for part in self.rest:
            if (match := part.match(data, match.end() + _uint(match[match.re.groups]))) is None:
                return None
        return match.end()


def pattern_of(kinds: Iterable[Kind]) -> Pattern | None:
    """Of an array of these; None if one of them is more than a number or a string."""
    parts, takes = [bytearray()], list[Take]()
    for kind in (fields := tuple(kinds)):
        if (piece := _piece(kind)) is None:
            return None
        parts[-1] += piece[0]
        takes.append(piece[1])
        if isinstance(kind, Bytes):
            parts.append(bytearray())
    parts[0][:0] = re.escape(cbor.array_head(len(fields)))
    first, *rest = (re.compile(bytes(part), re.DOTALL) for part in parts)
    return Pattern(first, tuple(rest), tuple(takes))


def _piece(kind: Kind) -> tuple[bytes, Take] | None:
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


def _uint(group: bytes) -> int:
    """The number in a head: in its low bits, or in the bytes after it."""
    return int.from_bytes(group[1:], "big") if len(group) > 1 else group[0] & _MAJOR


def _unless_null(take: Take, group: bytes | None) -> Any:
    return None if group is None else take(group)
