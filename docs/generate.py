"""Writes the parts of the documentation that are derived from the code; ``--check`` only compares.

    python docs/generate.py [--check]

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from veen_core import api, status
from veen_core.rejection import HTTP_STATUS, TABLE
from veen_core.wire import Wire

HERE = Path(__file__).parent


def envelopes() -> str:
    kinds = [
        kind
        for module in (api, status)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Wire) and kind.__module__ == module.__name__
    ]
    return "\n".join(envelope(kind) for kind in kinds)


def envelope(kind: type[Wire]) -> str:
    codec = kind.codec
    rows = [
        f"| {field.key} | `{field.name}` | {field.kind.describe()} | {'optional' if field.optional else ''} |"
        for field in codec.fields
    ]
    section = f"§{codec.section}" if codec.section[0].isdecimal() else codec.section
    title = f"### {codec.name} ({section})"
    return "\n".join([title, "", "| key | name | what | |", "|---|---|---|---|", *rows, ""])


def errors() -> str:
    rows = [f"| `{code.value}` | {HTTP_STATUS[code]} |" for code in HTTP_STATUS]
    return "\n".join(["| code | HTTP |", "|---|---|", *rows, ""])


def rejections() -> str:
    rows = [f"| {row.stage.value} | `{row.code.value}` | `{row.detail}` | {row.means} |" for row in TABLE]
    return "\n".join(["| stage | code | detail | means |", "|---|---|---|---|", *rows, ""])


PARTS: dict[str, Callable[[], str]] = {"envelopes": envelopes, "errors": errors, "rejections": rejections}


def filled(text: str) -> str:
    """The page with every generated part as the code has it now."""
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def main(arguments: list[str]) -> int:
    stale = 0
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) == text:
            continue
        if "--check" in arguments:
            print(f"{page.name} is behind the code: run `python docs/generate.py`")
            stale = 1
        else:
            page.write_text(new, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
