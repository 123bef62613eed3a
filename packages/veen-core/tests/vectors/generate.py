"""Make veen-core's own vectors, or check that the files are what would be made.

    python packages/veen-core/tests/vectors/generate.py            writes; removes what is no more
    python packages/veen-core/tests/vectors/generate.py --check    says what differs; 1 if anything does

``published/``, ``c2sp/`` and the folders of RFCs are others' vectors and are never touched.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
OTHERS = frozenset({"published", "rfc6962", "rfc8032", "rfc9180", "c2sp", "generator", "__pycache__"})
MODULES = (
    "message",
    "sealing",
    "log",
    "proofs",
    "entries",
    "chunks",
    "exports",
    "identity",
    "people",
    "local",
    "api",
    "tooling",
    "hub_log",
    "hub_exports",
    "forks",
    "handovers",
    "bundles",
)
PACKAGE = "veen_core_vector_generator"


def load(name: str) -> ModuleType:
    """A module of ``generator/``, loaded by path: this folder is on nobody's import path."""
    if PACKAGE not in sys.modules:
        init = HERE / "generator" / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            PACKAGE, init, submodule_search_locations=[str(init.parent)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return importlib.import_module(f"{PACKAGE}.{name}")


def objects() -> dict[str, Any]:
    """Every object by name, in the order of the specification."""
    return {one.name: one for module in MODULES for one in load(module).OBJECTS}


def make() -> dict[str, bytes]:
    """Path and content of every file."""
    return {path: content for one in objects().values() for path, content in one.files().items()}


def on_disk() -> dict[str, bytes]:
    folders = [folder for folder in HERE.iterdir() if folder.is_dir() and folder.name not in OTHERS]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(HERE).as_posix(): path.read_bytes() for path in files}


def differences(made: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    missing = [f"missing: {path}" for path in made if path not in found]
    extra = [f"extra: {path}" for path in found if path not in made]
    changed = [f"different: {path}" for path in made if path in found and made[path] != found[path]]
    return sorted(missing + extra + changed)


def write(made: dict[str, bytes], found: dict[str, bytes]) -> None:
    for path in found.keys() - made.keys():
        (HERE / path).unlink()
    for path, content in made.items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_bytes(content)
    for folder in sorted(HERE.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    made, found = make(), on_disk()
    told = differences(made, found)
    if not arguments:
        write(made, found)
    sys.stdout.write("".join(f"{line}\n" for line in told))
    sys.stdout.write(f"{len(made)} files, {len(told)} {'differ' if arguments else 'changed'}\n")
    return 1 if arguments and told else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
