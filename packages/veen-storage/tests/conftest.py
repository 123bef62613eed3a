"""Shared fixtures; the keys, labels and messages are in ``sample.py``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import lmdb
import pytest
from hypothesis import settings

from veen_core.keys import SigningKey
from veen_core.limits import Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_storage.store import Store, create

from .sample import BORN, HUB_KEY, SMALL, Unsynced

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")


class MakeStore(Protocol):
    def __call__(
        self,
        name: str = ...,
        *,
        key: SigningKey = ...,
        limits: Limits = ...,
        profile: Profile = ...,
        zstd_level: int | None = ...,
        **opening: Any,
    ) -> Store: ...


@pytest.fixture
def make_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStore]:
    """``make_store(name="data", …)`` opens ``tmp_path / name``, creating it if it is not there.

    ``key``, ``limits``, ``profile`` and ``zstd_level`` are for creating; everything else (``files``,
    ``signer``, ``background`` …) goes to ``Store``. Without ``background=True`` nothing is applied until
    ``store.apply()``; nothing waits for the disk, unless ``files`` does. What is still open when the test
    ends is closed.
    """
    monkeypatch.setattr(lmdb, "open", partial(lmdb.open, sync=False))
    opened: list[Store] = []

    def make(
        name: str = "data",
        *,
        key: SigningKey = HUB_KEY,
        limits: Limits = SMALL,
        profile: Profile = DEFAULT_PROFILE,
        zstd_level: int | None = None,
        **opening: Any,
    ) -> Store:
        root = tmp_path / name
        if not (root / "VERSION").exists():
            create(root, key, BORN, limits=limits, profile=profile, zstd_level=zstd_level, files=Unsynced())
        store = Store(root, **{"background": False, "files": Unsynced(), **opening})
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    """An empty store at ``tmp_path / "data"``; ``apply`` it by hand."""
    return make_store()
