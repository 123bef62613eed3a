"""The project's own vectors: the files are what the generator makes, and each is accepted or refused.

``vectors/generate.py`` makes them. Each object comes with the judge that decodes and verifies its cases.
"""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import veen_core
from veen_core import errors
from veen_core.wire import Wire

VECTORS = Path(__file__).parent / "vectors"
ON_EVERY_OBJECT = {"trailing_byte", "indefinite_length", "truncated", "tagged", "non_minimal_integer"}
ON_EVERY_MAP = {"unknown_key", "keys_misordered", "duplicate_key"}
ON_EVERY_ARRAY = {"item_missing", "item_added"}
ON_EVERY_ENVELOPE = {"json_unknown_key", "json_duplicate_key", "json_float", "json_trailing"}


def load_generator() -> ModuleType:
    name = "veen_core_vectors_generate"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, VECTORS / "generate.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


GENERATE = load_generator()
OBJECTS: dict[str, Any] = GENERATE.objects()
STRUCTURAL: frozenset[str] = GENERATE.load("case").STRUCTURAL
CASES = sorted(
    f"{folder.parent.name}/{folder.name}"
    for name in OBJECTS
    for folder in (VECTORS / name).iterdir()
    if folder.is_dir()
)
GOOD = [case for case in CASES if not case.endswith("_fail")]
BAD = [case for case in CASES if case.endswith("_fail")]


class Vector:
    """One case on disk."""

    def __init__(self, case: str) -> None:
        self.folder = VECTORS / case
        self.object = OBJECTS[case.partition("/")[0]]

    def part(self, name: str) -> Any:
        path = self.folder / f"{name}.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def judge(self) -> Any:
        if (text := self.folder / "wire.json").exists():
            return self.object.wire.from_json(text.read_bytes())
        path = self.folder / "wire.hex"
        wire = bytes.fromhex(path.read_text()) if path.exists() else b""
        return self.object.judge(wire, self.part("context"))


def test_the_files_are_what_the_generator_makes() -> None:
    assert GENERATE.differences(GENERATE.make(), GENERATE.on_disk()) == []


def test_another_process_makes_the_same_bytes() -> None:
    command = [sys.executable, str(VECTORS / "generate.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("files, 0 differ\n")


def test_missing_extra_and_changed_files_are_distinguished() -> None:
    told = GENERATE.differences({"a": b"1", "b": b"1"}, {"b": b"2", "c": b"1"})
    assert told == ["different: b", "extra: c", "missing: a"]


@pytest.mark.parametrize("case", GOOD)
def test_the_good_case_is_accepted_and_means_what_its_value_says(case: str) -> None:
    vector = Vector(case)
    assert vector.judge() == vector.part("value")


@pytest.mark.parametrize("case", BAD)
def test_the_bad_case_is_refused_with_exactly_its_error(case: str) -> None:
    vector = Vector(case)
    expect = vector.part("expect")
    with pytest.raises(errors.VeenError) as refusal:
        vector.judge()
    assert type(refusal.value).__name__ == expect["error"]
    assert expect["match"] in str(refusal.value)


@pytest.mark.parametrize("name", sorted(STRUCTURAL))
def test_a_signed_object_and_the_error_envelope_have_every_structural_fault(name: str) -> None:
    bad = {case.partition("/")[2].removesuffix("_fail") for case in BAD if case.startswith(f"{name}/")}
    codec = OBJECTS[name].wire.codec
    wanted = ON_EVERY_OBJECT | (ON_EVERY_ARRAY if type(codec).__name__ == "ArrayCodec" else ON_EVERY_MAP)
    wanted |= ON_EVERY_ENVELOPE if OBJECTS[name].json else set()
    wanted |= {"ver_2"} if codec.fields[0].name == "ver" else set()
    assert wanted - bad == set()


def declared() -> dict[str, type[Wire]]:
    """Every wire object of the package, by the name it has in errors."""
    for module in pkgutil.iter_modules(veen_core.__path__, "veen_core."):
        importlib.import_module(module.name)
    found = (cls for cls in Wire.__subclasses__() if "codec" in vars(cls))
    return {cls.codec.name: cls for cls in found if cls.__module__.startswith("veen_core.")}


def names_inside(kind: Any) -> Iterator[str]:
    """The wire objects that a field, or a field of a field, is made of."""
    for field in getattr(kind, "fields", ()):
        yield from names_inside(field.kind)
    if hasattr(kind, "fields"):
        yield kind.name
    elif hasattr(kind, "kind"):
        yield from names_inside(kind.kind)


def test_every_declared_object_has_vectors_of_its_own_or_inside_another() -> None:
    with_vectors = {name for one in OBJECTS.values() if one.wire for name in names_inside(one.wire.codec)}
    assert declared().keys() - with_vectors == set()
    assert {one.wire.codec.name for one in OBJECTS.values() if one.wire} <= declared().keys()


def test_every_object_has_a_good_case_on_disk() -> None:
    assert {case.partition("/")[0] for case in GOOD} == OBJECTS.keys()


def test_every_folder_of_vectors_is_an_object() -> None:
    folders = {path.name for path in VECTORS.iterdir() if path.is_dir()}
    assert folders - GENERATE.OTHERS == OBJECTS.keys()
