"""Shared by property and fuzz tests: values of every wire class, and non-canonical encodings of them.

``strategy_for`` derives a Hypothesis strategy from a wire class's own declaration, so that a new
class or field is covered the moment it is declared. ``respellings`` writes a decoded item again as
CBOR that is valid, often means the same, and is not canonical (§3.1, B3).
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import struct
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import veen_core
from veen_core import kinds, limits, profile
from veen_core.cbor import INT_MIN
from veen_core.codec import ArrayCodec, Field, MapCodec
from veen_core.hashing import U64_MAX
from veen_core.ids import Secret
from veen_core.wire import Wire

# --- the wire classes


def wire_classes() -> list[type[Wire]]:
    """Every wire object of veen_core, found in its modules."""
    names = [module.name for module in pkgutil.iter_modules(veen_core.__path__, "veen_core.")]
    held = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return sorted(
        {v for v in held if isinstance(v, type) and issubclass(v, Wire) and v is not Wire},
        key=lambda cls: (cls.__module__, cls.__name__),
    )


WIRE_CLASSES = wire_classes()


def holds_a_secret(kind: Any) -> bool:
    """Whether a value has no JSON form, because a field of it, however deep, is a secret."""
    match kind:
        case kinds.Fixed(of):
            return issubclass(of, Secret)
        case kinds.ListOf(inner) | kinds.Nullable(inner):
            return holds_a_secret(inner)
        case ArrayCodec() | MapCodec():
            return any(holds_a_secret(f.kind) for f in kind.fields)
    return False


SECRET_CLASSES = [cls for cls in WIRE_CLASSES if holds_a_secret(cls.codec)]
"""Classes without a JSON form, because they hold a secret."""
JSON_CLASSES = [cls for cls in WIRE_CLASSES if cls not in SECRET_CLASSES]
"""Classes with a JSON form (B17)."""


def steady(examples: int) -> settings:
    """The same examples on every run and every machine, however slow it is."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# --- values, derived from declarations

_WIDTHS = (0, 1, 23, 24, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63, U64_MAX)
"""Integers at which the length of the encoding changes."""
uints = st.one_of(st.sampled_from(_WIDTHS), st.integers(0, U64_MAX))
ints = st.one_of(st.sampled_from([n for w in _WIDTHS for n in (w, -1 - w)]), st.integers(INT_MIN, U64_MAX))
texts = st.text(max_size=30)
blobs = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(23), bytes(24), bytes(255), bytes(256)]))
frees = st.recursive(
    st.one_of(st.none(), st.booleans(), ints, texts), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)
"""Free values without maps, which CBOR and JSON represent alike."""


def strategy_for(cls: type[Wire]) -> st.SearchStrategy[Any]:
    """Values of a wire class, from its codec's fields."""
    return _strategy_of(cls.codec)


@functools.cache
def _strategy_of(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case ArrayCodec() | MapCodec():
            return _object(kind)
        case kinds.Uint():
            return uints
        case kinds.Int():
            return ints
        case kinds.OneOf(allowed):
            return st.sampled_from(allowed)
        case kinds.WordOf(of):
            return st.sampled_from(list(of))
        case kinds.Scalar(type=word):
            return {bool: st.booleans(), str: texts}[word]
        case kinds.Bytes():
            return blobs
        case kinds.Fixed(of, size):
            return st.binary(min_size=size, max_size=size).map(of)
        case kinds.ListOf(inner, least):
            return st.lists(_strategy_of(inner), min_size=least, max_size=3).map(tuple)
        case kinds.Nullable(inner):
            return st.none() | _strategy_of(inner)
        case kinds.AnyValue():
            return frees
    raise TypeError(f"no strategy for {kind!r}: a new kind needs a row here")


def _field(field: Field) -> st.SearchStrategy[Any]:
    inner = _strategy_of(field.kind)
    return st.none() | inner if field.optional else inner


def _object(codec: ArrayCodec | MapCodec) -> st.SearchStrategy[Any]:
    """From its fields, but for the two classes that bound their values beyond their kinds (§14)."""
    if codec.build is limits.Limits:
        return _lowered_limits()
    if codec.build is profile.Profile:
        return st.builds(profile.Profile, epoch_sec=uints, pad_block=st.integers(0, profile.MAX_PAD_BLOCK))
    return st.builds(codec.build, **{f.name: _field(f) for f in codec.fields})


def _lowered_limits() -> st.SearchStrategy[limits.Limits]:
    least = {"max_chunk_bytes": limits.MAXIMA["max_msg_bytes"] + limits.ENTRY_OVERHEAD_BYTES}
    ranges = {name: st.integers(least.get(name, 1), most) for name, most in limits.MAXIMA.items()}
    return st.builds(limits.Limits, **ranges)


# --- writing CBOR by hand, rightly and wrongly


_SHORTEST = ((0, 23), (1, 2**8 - 1), (2, 2**16 - 1), (4, 2**32 - 1), (8, U64_MAX))
"""Sizes of an argument in bytes, with the largest number of each."""


def head(major: int, argument: int, width: int | None = None) -> bytes:
    """An item's first bytes; ``width`` forces the bytes of its argument, 0 meaning none."""
    if width is None:
        width = next(w for w, most in _SHORTEST if argument <= most)
    if width == 0:
        return bytes([major << 5 | argument])
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")


_BREAK = b"\xff"
_TAGS = (0, 1, 2, 24, 30, 37, 258, 1000, 55799, U64_MAX)
_SIMPLE = {None: b"\xf6", False: b"\xf4", True: b"\xf5"}


def respellings(item: Any) -> Iterator[tuple[str, bytes]]:
    """Yield non-canonical encodings of ``item``, each with one fault, and the fault's name."""
    yield from _respell(item)
    canonical = spell(item)
    yield "trailing item", canonical + b"\x00"
    yield "trailing break", canonical + _BREAK
    yield "the item twice", canonical * 2


EQUAL = ("long form", "indefinite", "float", "bignum", "self-described", "duplicate", "misordered")
"""Encodings that a lenient decoder reads as the same value."""


def spell(item: Any) -> bytes:
    """Encode canonical CBOR, independently of the code under test."""
    match item:
        case None | bool():
            return _SIMPLE[item]
        case int():
            return head(0, item) if item >= 0 else head(1, -1 - item)
        case bytes():
            return head(2, len(item)) + item
        case str():
            return head(3, len(item.encode())) + item.encode()
        case list():
            return head(4, len(item)) + b"".join(map(spell, item))
        case dict():
            return head(5, len(item)) + b"".join(spell(k) + spell(v) for k, v in item.items())
    raise TypeError(f"cannot spell {type(item).__name__}")


def _respell(item: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the faults of the item itself, then those of its parts."""
    canonical = spell(item)
    for tag in _TAGS:
        name = "self-described" if tag == 55799 else f"tag {tag} around"
        yield name, head(6, tag) + canonical
    match item:
        case None | bool():
            yield "simple value in two bytes", b"\xf8" + bytes([canonical[0] & 0x1F])
            yield "undefined", b"\xf7"
        case int():
            yield from _respell_int(item)
        case bytes() | str():
            yield from _respell_string(item)
        case list():
            yield from _respell_parts(4, [[x] for x in item])
        case dict():
            yield from _respell_parts(5, [[k, v] for k, v in item.items()])
            yield from _respell_keys(item)


def _respell_int(item: int) -> Iterator[tuple[str, bytes]]:
    major, argument = (0, item) if item >= 0 else (1, -1 - item)
    yield from _long_forms(major, argument, b"")
    size = (argument.bit_length() + 7) // 8
    yield "bignum", head(6, 2 + major) + spell(argument.to_bytes(size, "big"))
    if float(item) == item:
        yield "float", b"\xfb" + struct.pack(">d", item)


def _long_forms(major: int, argument: int, rest: bytes) -> Iterator[tuple[str, bytes]]:
    shortest = len(head(major, argument)) - 1
    for width in (1, 2, 4, 8):
        if width > shortest:
            yield f"long form of {width}", head(major, argument, width) + rest


def _respell_string(item: bytes | str) -> Iterator[tuple[str, bytes]]:
    major, raw = (2, item) if isinstance(item, bytes) else (3, item.encode())
    yield from _long_forms(major, len(raw), raw)
    yield (
        "indefinite in no chunks" if not raw else "indefinite in one chunk",
        (bytes([major << 5 | 31]) + (head(major, len(raw)) + raw if raw else b"") + _BREAK),
    )
    if raw.isascii():
        yield "other string type", head(5 - major, len(raw)) + raw


def _respell_parts(major: int, entries: list[list[Any]]) -> Iterator[tuple[str, bytes]]:
    parts = [x for entry in entries for x in entry]
    rest = b"".join(map(spell, parts))
    yield from _long_forms(major, len(entries), rest)
    yield "indefinite container", bytes([major << 5 | 31]) + rest + _BREAK
    yield "one part too many announced", head(major, len(entries) + 1) + rest
    for at, part in enumerate(parts):
        before, after = (b"".join(map(spell, side)) for side in (parts[:at], parts[at + 1 :]))
        for name, wrong in _respell(part):
            yield name, head(major, len(entries)) + before + wrong + after


def _respell_keys(item: dict[Any, Any]) -> Iterator[tuple[str, bytes]]:
    spelled = [spell(k) + spell(v) for k, v in item.items()]
    longer, same = head(5, len(spelled) + 1), head(5, len(spelled))
    for stray in (99, -1, "stray", b"\x01", None, False):
        if stray not in item:
            yield "unknown key", longer + b"".join(spelled) + spell(stray) + spell(1)
    for at, entry in enumerate(spelled):
        yield "duplicate key", longer + b"".join(spelled[: at + 1]) + entry + b"".join(spelled[at + 1 :])
        if at:
            swapped = [*spelled[: at - 1], entry, spelled[at - 1], *spelled[at + 1 :]]
            yield "misordered keys", same + b"".join(swapped)
