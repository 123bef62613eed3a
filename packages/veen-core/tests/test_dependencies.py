"""Every package of the workspace declares exactly the distributions that its source imports or starts."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGES = sorted(path.parent for path in Path(__file__).parents[2].glob("*/pyproject.toml"))
DISTRIBUTIONS = {"nacl": "pynacl", "yaml": "pyyaml", "nats": "nats-py"}
"""Import names that differ from the name of their distribution."""
STARTED = {"veen-selftest": {"veen-bridge"}}
"""Distributions whose commands a package starts without importing them: ``veen bridge …``."""


def imported_distributions(source: Path) -> set[str]:
    """The distributions that the modules below ``source`` import anywhere, functions included."""
    modules: set[str] = set()
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module)
    names = {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
    names.discard("_typeshed")  # exists for type checkers only
    return {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in names}


def declared_distributions(pyproject: Path) -> tuple[set[str], set[str]]:
    """The names in ``project.dependencies`` and those in its extras, without versions."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    return names_in(project["dependencies"]), names_in([line for lines in extras.values() for line in lines])


def names_in(lines: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in lines)
    return {name[0].lower() for name in found if name is not None}


def test_the_workspace_has_eight_packages() -> None:
    assert len(PACKAGES) == 8


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_declares_exactly_what_it_imports(package: Path) -> None:
    imported = imported_distributions(package / "src") - {package.name}
    imported |= STARTED.get(package.name, set())
    always, extras = declared_distributions(package / "pyproject.toml")
    assert always - imported == set(), "declared and not imported"
    assert imported - always - extras == set(), "imported and not declared"
