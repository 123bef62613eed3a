"""The registry: discovers every overlay of this package, by name.

A module or package directly under ``veen_overlays`` that declares overlays lists them in a tuple
``OVERLAYS``:

    OVERLAYS = (KV,)

The registry imports these modules and collects the tuples. ``veen fold``, ``veen snapshot``, Spark's folds
and columns, the records reference and the law tests take their overlays from here, so a new overlay is one
new module.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import veen_overlays
from veen_overlays.fold.overlay import Overlay

FRAMEWORK: Final = frozenset(("fold", "schema", "summary_tree", "live"))
"""Subpackages that declare no overlay; the registry does not import them."""


def _declared() -> Iterator[Overlay[Any]]:
    for module in sorted(pkgutil.iter_modules(veen_overlays.__path__), key=lambda each: each.name):
        if module.name not in FRAMEWORK:
            yield from getattr(import_module(f"veen_overlays.{module.name}"), "OVERLAYS", ())


def _by_name(overlays: Iterator[Overlay[Any]]) -> dict[str, Overlay[Any]]:
    found: dict[str, Overlay[Any]] = {}
    for overlay in overlays:
        if found.setdefault(overlay.name, overlay) is not overlay:
            raise ValueError(f"two overlays are named {overlay.name}")
    return found


OVERLAYS: Final[Mapping[str, Overlay[Any]]] = _by_name(_declared())
