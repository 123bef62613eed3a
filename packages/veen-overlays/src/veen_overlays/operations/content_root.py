"""The Merkle root over published files (spec-3 6.2).

The document recommends the nodes and the root, and leaves the leaves to the deployment. A leaf is
``Ht("veen/content-leaf", CBOR([name, H(content)]))``. The leaves are in the order of their names' UTF-8
bytes, so that the same files have one root however they were listed. Nodes are
``Ht("veen/content-node", left || right)``, and the root is ``Ht("veen/content-root", concat(peaks))`` with
the peaks in increasing height (core §5.1), also if there is only one peak (RESOLUTIONS B6).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from veen_core import cbor
from veen_core.errors import EncodeError
from veen_core.hashing import HASH_SIZE, Ht
from veen_core.ids import FixedBytes
from veen_core.wrapped_root import wrapped_root

MAX_NAME_BYTES: Final = 4_096
"""Longest name of a published file, in bytes of UTF-8."""


class ContentRoot(FixedBytes):
    """The Merkle root over the files of a publication (spec-3 6.2)."""

    __slots__ = ()


class PublishedFile(NamedTuple):
    """A file as a publication sees it."""

    name: str
    """A relative path with ``/`` between its parts."""
    content_hash: bytes
    """``H(content)``."""


def content_leaf(file: PublishedFile) -> bytes:
    """The leaf of one file; raise ``EncodeError`` for a name that is not a plain relative path."""
    if (why := _broken_name(file.name)) is not None:
        raise EncodeError(f"{file.name!r} cannot be published: {why}")
    if len(file.content_hash) != HASH_SIZE:
        raise EncodeError(f"the content hash of {file.name!r} has {len(file.content_hash)} bytes, not 32")
    return Ht("veen/content-leaf", cbor.encode([file.name, file.content_hash]))


def _broken_name(name: str) -> str | None:
    if not 0 < len(name.encode(errors="surrogatepass")) <= MAX_NAME_BYTES:
        return f"a name has 1 to {MAX_NAME_BYTES} bytes"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a name is a relative path without empty parts, '.' and '..'"
    if "\x00" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return "a name is UTF-8 without NUL"
    return None


def content_root(files: Iterable[PublishedFile]) -> ContentRoot:
    """The root over files in any order; raise ``EncodeError`` if two have one name, or there is none."""
    ordered = sorted(files, key=lambda file: file.name.encode(errors="surrogatepass"))
    if not ordered:
        raise EncodeError("a publication has at least one file")
    for before, file in pairwise(ordered):
        if before.name == file.name:
            raise EncodeError(f"two files are named {file.name!r}")
    leaves = map(content_leaf, ordered)
    return ContentRoot(wrapped_root(leaves, node="veen/content-node", root="veen/content-root"))
