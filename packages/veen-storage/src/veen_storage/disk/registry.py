"""What is fixed when a data directory is created, and verified whenever it is opened (§14.1, H10, §4.8.4)."""

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
from veen_storage.errors import DamageError, MismatchError, StorageError, unreadable

__all__ = ["FORMAT_VERSION", "Registry", "check_limits", "check_profile", "read_registry", "write_registry"]

FORMAT_VERSION: Final = 1
_MAGIC: Final = "veen-data"


def write_registry(files: Files, layout: Layout, registry: Registry) -> None:
    """Registry first, VERSION last: a directory without VERSION was never finished."""
    content = registry.encode()
    files.replace(layout.registry, content)
    files.replace(layout.version, f"{_MAGIC} {FORMAT_VERSION} {H(content).hex()}\n".encode())


def not_a_data_directory(root: Path) -> StorageError:
    """Return the error for a folder without VERSION, which creation writes last."""
    if Layout(root).journal.is_dir():
        return StorageError(
            f"{root} is not a VEEN data directory: it has no VERSION file, so its creation was interrupted",
            action="run `veen hub init` again; if it is a clone or a fork, delete it and make it again",
        )
    return StorageError(
        f"{root} is not a VEEN data directory: it has no VERSION file",
        action="name another folder, or create a data directory with `veen hub init`",
    )


def read_registry(layout: Layout) -> Registry:
    """The registry, or an error that says which of version, hash and content is wrong."""
    expected = _read_version(layout.version)
    try:
        content = layout.registry.read_bytes()
    except FileNotFoundError:
        raise DamageError(layout.registry.name, None, "is missing", "restore it from a clone") from None
    except OSError as exc:
        raise unreadable(layout.registry.name, exc) from exc
    if H(content).hex() != expected:
        raise DamageError(
            layout.registry.name,
            None,
            "is not the one this directory was created with",
            "restore it from a clone",
        )
    try:
        return Registry.decode(content)
    except DecodeError as exc:
        raise DamageError(layout.registry.name, None, str(exc), "restore it from a clone") from exc


def _read_version(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise not_a_data_directory(path.parent) from None
    except OSError as exc:
        raise unreadable(path.name, exc) from exc
    except UnicodeDecodeError:
        raise DamageError(path.name, None, "is not text", "restore it from a clone") from None
    match text.removesuffix("\n").split(" "):
        case [magic, version, digest] if magic == _MAGIC and version.isdecimal() and text.endswith("\n"):
            if int(version) != FORMAT_VERSION:
                raise MismatchError(
                    f"{path.parent} has data format {version}, this veen reads {FORMAT_VERSION}: use "
                    f"one that reads {version}"
                )
            return digest
    raise DamageError(path.name, None, "does not name a VEEN data format", "restore it from a clone")


def check_limits(registry: Registry, wanted: Limits) -> None:
    """A hub configured with other limits than the directory's is refused, naming the first (§14.1)."""
    for field in dataclasses.fields(Limits):
        has, wants = getattr(registry.limits, field.name), getattr(wanted, field.name)
        if has != wants:
            raise MismatchError(
                f"limit {field.name}: the directory was created with {has}, the configuration says {wants}; "
                "limits are fixed for the life of a hub"
            )


def check_profile(registry: Registry, wanted: Profile) -> None:
    if registry.profile != wanted:
        raise MismatchError(
            f"profile: the directory was created with epoch_sec {registry.profile.epoch_sec} and pad_block "
            f"{registry.profile.pad_block}, the configuration says {wanted.epoch_sec} and {wanted.pad_block}"
        )
