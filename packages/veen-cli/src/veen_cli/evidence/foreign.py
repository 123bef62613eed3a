"""What lies beside VEEN bytes and is none: said by name, with what reads it."""

from __future__ import annotations

import json
import re
from typing import Final

_LMDB: Final = b"\xde\xc0\xef\xbe"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_SAMPLE: Final = 1_048_576


def foreign(data: bytes) -> str | None:
    """What it is and what to use instead; None if nothing is known about it."""
    if data.startswith(b"PAR1"):
        return "a Parquet file: `veen spark` and every Parquet reader read it"
    if data[16:20] == _LMDB:
        return (
            "an LMDB database, an index or view that is derived from the log: `veen hub fsck` checks a hub's"
        )
    if data.startswith(_LMDB):
        return "LMDB's lock file, which says nothing of the log"
    return _text(data)


def _text(data: bytes) -> str | None:
    """Arrays and maps of CBOR begin with bytes that no UTF-8 begins with: what is text is none of ours."""
    try:
        text = data[:_SAMPLE].decode()
    except UnicodeDecodeError as exc:
        if exc.start < _SAMPLE - 4 or len(data) <= _SAMPLE:
            return None
        text = data[: exc.start].decode()
    if _CONTROL.search(text) is not None:
        return None
    if text.startswith("-----BEGIN "):
        return "PEM text: `openssl` reads it"
    if text.startswith("<"):
        return "XML or HTML text: read it as it is"
    return "JSON text: read it as it is, or with `jq`" if _is_json(text) else "plain text: read it as it is"


def _is_json(text: str) -> bool:
    """One value, or one a line."""
    first = text.split("\n", 1)[0]
    if not text.startswith(("{", "[")):
        return False
    if first.strip() in ("{", "["):
        return True
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True
