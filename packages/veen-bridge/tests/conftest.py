"""Zones whose hubs are stopped when their tests end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from .source_zone import SourceZone

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")


@pytest.fixture
def make_zone(tmp_path: Path) -> Iterator[Callable[..., SourceZone]]:
    """Return ``make_zone(name="z1", …)``, which starts a hub below ``tmp_path``."""
    made: list[SourceZone] = []

    def make(name: str = "z1", **settings: Any) -> SourceZone:
        made.append(SourceZone(tmp_path / name, **settings))
        return made[-1]

    yield make
    for zone in made:
        zone.stop()


@pytest.fixture
def zone(make_zone: Callable[..., SourceZone]) -> SourceZone:
    return make_zone()
