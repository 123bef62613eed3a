import pytest
from hypothesis import settings

from veen_core import PROFILES

from .simulator import Hub, Person, person

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def rotating_hub() -> Hub:
    """Under the profile whose labels change every minute (H10)."""
    return Hub(profile=PROFILES["rotating"])


@pytest.fixture
def alice(hub: Hub) -> Person:
    return person("alice", hub)
