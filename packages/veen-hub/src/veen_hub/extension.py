"""Extension points: small protocols whose implementations are found by entry point (DESIGN).

A policy, an anchor or a clock is named in the configuration and brought by any package that is installed:
the hub imports none of them.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from veen_core.errors import ConfigError, VeenError

POLICIES: Final = "veen_hub.policies"
"""Called with hub_id and ``policy.options``; makes an ``AdmissionPolicy``."""
ANCHORS: Final = "veen_hub.anchors"
"""Called with the settings under ``anchor``; makes an ``Anchor``."""
CLOCKS: Final = "veen_hub.clocks"
"""Called with nothing; makes a ``Clock``."""


def find(group: str, name: str, key: str, hint: str = "") -> EntryPoint:
    """The one of that name; ``key`` is the setting that names it."""
    known = {point.name: point for point in entry_points(group=group)}
    if name not in known:
        there = ", ".join(sorted(known)) or "none is installed"
        raise ConfigError(f"{key}: there is no {name!r}; available: {there}{hint}")
    return known[name]


def make(group: str, name: str, key: str, *given: object, hint: str = "") -> Any:
    """What the one of that name makes of ``given``; what goes wrong in it is the setting's fault."""
    point = find(group, name, key, hint)
    try:
        return point.load()(*given)
    except VeenError:
        raise  # it says itself what is wrong
    except Exception as exc:  # another package's code may raise anything
        why = f"{type(exc).__name__}: {exc}"
        raise ConfigError(f"{key}: {name!r} ({point.value}) cannot be used: {why}") from exc
