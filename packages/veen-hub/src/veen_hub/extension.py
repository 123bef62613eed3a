"""Extension points: policies, anchors and clocks from other packages, found by entry point (DESIGN).

hub.yaml names an extension; the hub's own code imports no package that provides one.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from veen_core.errors import ConfigError, VeenError

POLICIES: Final = "veen_hub.policies"
"""Entry points called with hub_id and ``policy.options``; each returns an ``AdmissionPolicy``."""
ANCHORS: Final = "veen_hub.anchors"
"""Entry points called with the settings under ``anchor``; each returns an ``AnchorBackend``."""
DESCRIPTORS: Final = "veen_hub.descriptors"
"""Entry points called without arguments; each returns a ``HubDescriber`` (spec-5)."""
CLOCKS: Final = "veen_hub.clocks"
"""Entry points called without arguments; each returns a ``Clock``."""


def find(group: str, name: str, key: str, hint: str = "") -> EntryPoint:
    """Find an entry point by name; ``key`` is the setting that names it."""
    known = {point.name: point for point in entry_points(group=group)}
    if name not in known:
        available = ", ".join(sorted(known)) or "none is installed"
        raise ConfigError(f"{key}: there is no {name!r}; available: {available}{hint}")
    return known[name]


def make(group: str, name: str, key: str, *arguments: object, hint: str = "") -> Any:
    """Load an entry point and call it; any failure becomes a ``ConfigError`` about the setting."""
    point = find(group, name, key, hint)
    try:
        return point.load()(*arguments)
    except VeenError:
        raise  # already says what is wrong
    except Exception as exc:  # code of another package may raise anything
        why = f"{type(exc).__name__}: {exc}"
        raise ConfigError(f"{key}: {name!r} ({point.value}) cannot be used: {why}") from exc
