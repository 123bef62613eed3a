"""Fixtures: hubs in this process and in processes of their own, on temporary directories."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import settings

from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_hub.api.submit import SubmitCall
from veen_hub.http.connections import Connection

from .certificates import Certificates
from .people import Writer
from .serving import HubProcess, RunningHub, make_directory
from .sharded import ShardedHub, Start, new_directory

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")


class StartHub(Protocol):
    def __call__(
        self, name: str = ..., *, profile: Profile = ..., limits: Limits = ..., **settings: Any
    ) -> RunningHub: ...


class StartProcess(Protocol):
    def __call__(self, name: str = ..., *flags: str, **options: Any) -> HubProcess: ...


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: most tests are not about waiting for the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="veen-hub-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def start_hub(place: Path) -> Iterator[StartHub]:
    """``start_hub(name, …)`` serves ``place / name``, creating it if it is not there.

    ``profile`` and ``limits`` are for creating; ``clock``, ``policy``, ``anchor`` and ``files`` are the hub's
    parts; everything else is a setting of hub.yaml. What still runs when the test ends is stopped.
    """
    started: list[RunningHub] = []

    def start(
        name: str = "data",
        *,
        profile: Profile = DEFAULT_PROFILE,
        limits: Limits = DEFAULT_LIMITS,
        **settings: Any,
    ) -> RunningHub:
        root = place / name
        if not (root / "VERSION").exists():
            make_directory(root, profile=profile, limits=limits)
        started.append(RunningHub(root, **settings))
        return started[-1]

    yield start
    for hub in started:
        hub.stop()


@pytest.fixture
def hub(start_hub: StartHub) -> RunningHub:
    """Gated, under the default profile."""
    return start_hub()


@pytest.fixture
def alice(hub: RunningHub) -> Writer:
    """May write to ``orders``."""
    return hub.writer("alice")


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[StartProcess]:
    """``start_process(name, *flags)`` runs a real ``veen-hub`` on ``tmp_path / name``."""
    started: list[HubProcess] = []

    def start(name: str = "data", *flags: str, **options: Any) -> HubProcess:
        root = tmp_path / name
        if not (root / "VERSION").exists():
            make_directory(root)
        started.append(HubProcess(root, *flags, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[SubmitCall]:
    """The submits that were handled without aiohttp's handler."""
    seen: list[SubmitCall] = []
    begin = Connection._begin_submit

    def noted(connection: Connection, message: Any, payload: Any) -> None:
        before = connection._submit
        begin(connection, message, payload)
        seen.append(connection._submit or before)  # type: ignore[arg-type]  # only counted

    monkeypatch.setattr(Connection, "_begin_submit", noted)
    return seen


@pytest.fixture
def start_sharded(place: Path) -> Iterator[Start]:
    """``start()`` runs a new hub with two shards; ``start(root)`` runs one on an existing directory."""
    started: list[ShardedHub] = []

    def run(root: Path | None = None, **options: Any) -> ShardedHub:
        if root is None:
            root = new_directory(place)
        started.append(ShardedHub(root, **options))
        return started[-1]

    yield run
    for hub in started:
        hub.kill()
