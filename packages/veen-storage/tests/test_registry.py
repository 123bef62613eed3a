from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, PROFILES
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, check_limits, check_profile, read_registry, write_registry
from veen_storage.errors import DamageError, MismatchError, StorageError

from .sample import HUB_ID, SMALL

REGISTRY = Registry(hub_id=HUB_ID, limits=SMALL, profile=PROFILES["bulk"], zstd_level=3)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path)
    write_registry(Files(), made, REGISTRY)
    return made


def test_the_registry_is_read_back_as_written(layout: Layout) -> None:
    assert read_registry(layout) == REGISTRY
    assert Registry.decode(Registry(hub_id=HUB_ID).encode()).zstd_level is None


def test_version_is_written_last(tmp_path: Path) -> None:
    class Stops(Files):
        def replace(
            self, path: Path, content: bytes, mode: int = 0o644, *, sync_directory: bool = True
        ) -> None:
            if path.name == "VERSION":
                raise OSError("the machine stops")
            super().replace(path, content, mode, sync_directory=sync_directory)

    with pytest.raises(OSError, match="stops"):
        write_registry(Stops(), Layout(tmp_path), REGISTRY)
    assert (tmp_path / "registry.cbor").exists()
    with pytest.raises(StorageError, match="no VERSION file"):
        read_registry(Layout(tmp_path))


def test_a_folder_without_version_is_not_a_data_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        read_registry(Layout(tmp_path))
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        read_registry(Layout(tmp_path / "missing"))


def test_a_newer_format_is_refused_not_damaged(layout: Layout) -> None:
    layout.version.write_text(layout.version.read_text().replace("veen-data 1", "veen-data 3"))
    with pytest.raises(MismatchError, match="data format 3, this veen reads format 1"):
        read_registry(layout)


@pytest.mark.parametrize(
    "text",
    ["", "veen-data 1\n", "other-data 1 00\n", "veen-data one 00\n", "veen-data 1 00 11\n", "veen-data 1 00"],
    ids=["empty", "no-digest", "other-magic", "no-number", "too-much", "no-newline"],
)
def test_a_version_that_names_no_format_is_damage(layout: Layout, text: str) -> None:
    layout.version.write_text(text)
    with pytest.raises(DamageError, match="VERSION: does not name"):
        read_registry(layout)


def test_a_version_that_is_not_text_is_damage(layout: Layout) -> None:
    layout.version.write_bytes(b"\xff\xfe")
    with pytest.raises(DamageError, match="VERSION: does not name a VEEN data format"):
        read_registry(layout)


def test_a_changed_registry_is_refused(layout: Layout) -> None:
    raised = dataclasses.replace(REGISTRY, limits=dataclasses.replace(SMALL, max_checkpoint_interval=9))
    layout.registry.write_bytes(raised.encode())
    with pytest.raises(DamageError, match="is not the registry that this directory was created with"):
        read_registry(layout)


def test_a_missing_registry_is_damage(layout: Layout) -> None:
    layout.registry.unlink()
    with pytest.raises(DamageError, match=r"registry\.cbor: is missing"):
        read_registry(layout)


def test_a_registry_that_does_not_decode_is_damage(tmp_path: Path) -> None:
    class Nonsense(Registry):
        def encode(self) -> bytes:
            return b"\xa0"

    write_registry(Files(), Layout(tmp_path), Nonsense(hub_id=HUB_ID))
    with pytest.raises(DamageError, match=r"registry\.cbor"):
        read_registry(Layout(tmp_path))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
def test_every_limit_is_compared_and_named(name: str) -> None:
    registry = Registry(hub_id=HUB_ID)
    check_limits(registry, DEFAULT_LIMITS)
    value = getattr(DEFAULT_LIMITS, name)
    lowered = dataclasses.replace(
        DEFAULT_LIMITS, **{name: value - 1 if name != "max_chunk_bytes" else value // 2}
    )
    with pytest.raises(MismatchError, match=f"limit {name}: .* {value}"):
        check_limits(registry, lowered)


def test_another_profile_is_refused() -> None:
    registry = Registry(hub_id=HUB_ID)
    check_profile(registry, DEFAULT_PROFILE)
    with pytest.raises(MismatchError, match="created with epoch_sec 0 and pad_block 256"):
        check_profile(registry, PROFILES["rotating"])
