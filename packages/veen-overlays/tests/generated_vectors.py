"""Vectors that a program in ``vectors/`` makes: the program as a module, and its cases as test parameters."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from veen_core.errors import DecodeError
from veen_overlays.schema.record import Record

VECTORS = Path(__file__).parent / "vectors"
sys.path.insert(0, str(VECTORS))  # the modules that the programs share


def generator(name: str) -> ModuleType:
    """Import ``vectors/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"vectors_{name}", VECTORS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def json_cases(name: str, kind: str) -> list[Any]:
    """The good or the bad cases of the files in ``vectors/NAME/``."""
    return [
        pytest.param(path.stem, case, id=f"{path.stem} {title}")
        for path in sorted((VECTORS / name).glob("*.json"))
        for title, case in json.loads(path.read_text("utf-8"))[kind].items()
    ]


def folder_cases(shapes: dict[str, type[Record]], *, good: bool) -> list[Any]:
    """The good or the bad cases of the folders ``vectors/RECORD/CASE/``: record, body, value or error."""
    told = "value.json" if good else "expect.json"
    return [
        pytest.param(
            shape,
            bytes.fromhex((case / "wire.hex").read_text("ascii")),
            json.loads((case / told).read_text("utf-8")),
            id=f"{name} {case.name}",
        )
        for name, shape in sorted(shapes.items())
        for case in sorted((VECTORS / name).iterdir())
        if case.name.endswith("_fail") is not good
    ]


def check_good(shape: type[Record], body: bytes, value: Any) -> None:
    """Check that a body decodes to its value, and is encoded to the same bytes."""
    record = shape.decode(body)
    assert record.codec.write_json(record) == value
    assert record.encode() == body


def check_bad(shape: type[Record], body: bytes, match: str) -> None:
    """Check that a body is refused for this reason."""
    with pytest.raises(DecodeError) as refused:
        shape.decode(body)
    assert match in str(refused.value)
