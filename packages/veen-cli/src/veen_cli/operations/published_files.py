"""Files to publish: their names and the hashes of their contents (spec-3 6.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from veen_cli.arguments import completions
from veen_cli.frame.exits import CommandFailed, Exit
from veen_overlays.operations.content_root import PublishedFile

files_argument = click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE…",
    type=click.Path(path_type=Path, exists=True),
    shell_complete=completions.files,
)

READ_BYTES: Final = 1 << 20


def published_files(paths: Sequence[Path]) -> list[PublishedFile]:
    """The files as they are published: a file in a folder is named by its path in the folder."""
    return [PublishedFile(name, _content_hash(file)) for path in paths for name, file in _named(path)]


def _named(path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield path.name, path
        return
    for inside in sorted(path.rglob("*")):
        if inside.is_symlink() or not (inside.is_file() or inside.is_dir()):
            raise CommandFailed(
                f"{inside} is neither a file nor a folder", Exit.USAGE, "name the files to publish one by one"
            )
        if inside.is_file():
            yield inside.relative_to(path).as_posix(), inside


def _content_hash(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while part := content.read(READ_BYTES):
            digest.update(part)
    return digest.digest()
