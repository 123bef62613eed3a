"""One Spark session for the whole suite, and hubs that are closed when a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from .daemons import BRIEF
from .logs import Hub

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores with two shuffle partitions, because tasks cost more than these small logs."""
    from veen_spark import start  # noqa: PLC0415 - tests without Spark do not wait for it

    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": BRIEF}
    session = start("local[2]", app_name="veen-spark tests", config=config)
    yield session
    session.stop()


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Return ``make_hub(name="hub", …)``, which creates ``tmp_path / name``; see ``logs.Hub``."""
    made: list[Hub] = []

    def make(name: str = "hub", **settings: Any) -> Hub:
        made.append(Hub(tmp_path / name, **settings))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    return make_hub()
