"""VERSION and registry: fixed at creation, verified whenever a directory is opened (core §14.1, §4.8.4)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.limits import Limits
from veen_core.profile import Profile
from veen_core.registry import Registry
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import RESTORE, DamageError, MismatchError, StorageError, read_file

__all__ = [
    "FORMAT_VERSION",
    "SHARDED_VERSION",
    "Registry",
    "check_limits",
    "check_profile",
    "read_registry",
    "read_version",
    "version_text",
    "write_registry",
]

FORMAT_VERSION: Final = 1
SHARDED_VERSION: Final = 2
"""Format of a sharded hub's data directory, whose parts are directories of their own (``shards``)."""
DATA: Final = "veen-data"
MOVED_NOTE: Final = "VERSION.moved.note"
MOVED: Final = "VERSION.moved"
"""The name of VERSION in a directory whose hub was moved by ``shards.reshard``."""
PART: Final = "veen-part"
"""First word of VERSION in a part of a sharded hub: it must not be started, copied or changed alone."""


def write_registry(files: Files, layout: Layout, registry: Registry) -> None:
    """Write the registry, then VERSION: a directory without VERSION was never finished."""
    content = registry.encode()
    files.replace(layout.registry, content)
    files.replace(layout.version, version_text(DATA, FORMAT_VERSION, content))


def version_text(magic: str, version: int, content: bytes) -> bytes:
    """Return the content of VERSION: kind and format of a directory, and the hash of its description."""
    return f"{magic} {version} {H(content).hex()}\n".encode()


def not_a_data_directory(root: Path) -> StorageError:
    """Return the error for a folder without VERSION, which creation writes last."""
    if (root / MOVED).exists():
        return StorageError(
            f"{root} is no data directory any more: `veen hub reshard` has moved its hub into another one",
            action=f"name the new directory; {root / MOVED_NOTE} says which one it was",
        )
    if Layout(root).journal.is_dir():
        return StorageError(
            f"{root} is not a VEEN data directory: it has no VERSION file, so its creation was interrupted",
            action="run `veen hub init` again; if it is a clone or a fork, delete it and make it again",
        )
    return StorageError(
        f"{root} is not a VEEN data directory: it has no VERSION file",
        action="name another folder, or create a data directory with `veen hub init`",
    )


def read_registry(layout: Layout, *, part: bool = False) -> Registry:
    """Read the registry; raise an error that says whether version, hash or content is wrong.

    ``part``: the directory must be a part of a sharded hub. Without ``part``, such a directory is refused.
    """
    expected, name = _read_digest(layout, part=part), layout.registry.name
    content = read_file(layout.registry)
    if H(content).hex() != expected:
        raise DamageError(name, None, "is not the registry that this directory was created with", RESTORE)
    try:
        return Registry.decode(content)
    except DecodeError as exc:
        raise DamageError(name, None, str(exc), RESTORE) from exc


def read_version(layout: Layout) -> tuple[str, int, str]:
    """Return what VERSION says: the kind of directory, its format, and the hash of its description."""
    path = layout.version
    if not path.exists():
        raise not_a_data_directory(path.parent)
    text = read_file(path).decode("ascii", "replace")
    match text.removesuffix("\n").split(" "):
        case [magic, version, digest] if (
            magic in (DATA, PART) and version.isdecimal() and text.endswith("\n")
        ):
            return magic, int(version), digest
    raise DamageError(path.name, None, "does not name a VEEN data format", RESTORE)


def _read_digest(layout: Layout, *, part: bool) -> str:
    """Return the hash of the registry that VERSION names; raise if the directory is of another kind."""
    root = layout.root
    magic, version, digest = read_version(layout)
    if magic == PART and not part:
        raise MismatchError(
            f"{root} is one part of a sharded hub and cannot be used alone",
            action=f"name the hub's data directory, {root.parent.parent}",
        )
    if version == SHARDED_VERSION and magic == DATA:
        raise MismatchError(
            f"{root} holds a hub with several shards, which this operation does not support",
            action=f"use a copy with one shard (`veen hub clone --data-dir {root} --out DIRECTORY`), or move "
            "the stopped hub into one shard (`veen hub reshard`)",
        )
    if version != FORMAT_VERSION:
        raise MismatchError(
            f"{root} has data format {version}, this veen reads format {FORMAT_VERSION}",
            action=f"use a veen that reads format {version}",
        )
    if part and magic != PART:
        raise MismatchError(f"{root} is no part of a sharded hub", action=RESTORE)
    return digest


def check_limits(registry: Registry, wanted: Limits) -> None:
    """Raise if a configured limit differs from the directory's; name the first one (core §14.1)."""
    for field in dataclasses.fields(Limits):
        has, wants = getattr(registry.limits, field.name), getattr(wanted, field.name)
        if has != wants:
            raise MismatchError(
                f"limit {field.name}: the directory was created with {has}, the configuration says {wants}, "
                "and limits are fixed for the life of a hub",
                action="remove the limit from the configuration",
            )


def check_profile(registry: Registry, wanted: Profile) -> None:
    """Raise if the configured profile differs from the directory's."""
    if registry.profile != wanted:
        raise MismatchError(
            f"profile: the directory was created with epoch_sec {registry.profile.epoch_sec} and pad_block "
            f"{registry.profile.pad_block}, the configuration says {wanted.epoch_sec} and {wanted.pad_block}"
        )
