"""The files of vectors: what a program has made, what is on disk, and the comparison of both."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Files = dict[str, bytes]
"""Path below a folder, and content."""


def as_json(value: Any) -> bytes:
    """The content of a JSON file."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def json_files(folder: Path) -> Files:
    """The JSON files of a folder."""
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def run(folder: Path, made: Files, found: Files, arguments: list[str]) -> int:
    """Write the files that were made, or with ``--check`` compare them; print the files that differ."""
    differ = sorted(path for path in made.keys() | found.keys() if made.get(path) != found.get(path))
    if "--check" not in arguments:
        for path in found.keys() - made.keys():
            (folder / path).unlink()
        for path, content in made.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    sys.stdout.write("".join(f"{path}\n" for path in differ))
    return 1 if differ and "--check" in arguments else 0
