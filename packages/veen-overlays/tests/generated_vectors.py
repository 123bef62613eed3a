"""Vectors that a program in ``vectors/`` makes: the program as a module, and its cases as test parameters."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

VECTORS = Path(__file__).parent / "vectors"


def generator(name: str) -> ModuleType:
    """Import ``vectors/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def json_cases(name: str, kind: str) -> list[Any]:
    """The good or the bad cases of the files in ``vectors/NAME/``."""
    return [
        pytest.param(path.stem, case, id=f"{path.stem} {title}")
        for path in sorted((VECTORS / name).glob("*.json"))
        for title, case in json.loads(path.read_text("utf-8"))[kind].items()
    ]
