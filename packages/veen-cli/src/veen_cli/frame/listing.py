"""One line of help for a command that another distribution brings, without importing it.

Importing it may take a second (a client, a JVM), and ``veen --help`` has a quarter of one. So the line is
read from the source: the docstring of the function that the entry point names, or the ``help`` of what makes
it. What cannot be found is listed as broken; what is there and does not import says so when it is run.
"""

from __future__ import annotations

import ast
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path


def line_of(entry: EntryPoint) -> str:
    """The first paragraph of its help; what its distribution says of itself, if the source tells nothing."""
    distribution = entry.dist.name if entry.dist else "an unknown distribution"
    try:
        spec = find_spec(entry.module)  # imports the packages above it, not the module
    except Exception:  # noqa: BLE001 - whatever a stranger's package raises
        spec = None
    if spec is None:
        return f"(broken) {distribution} cannot be loaded"
    help_ = _help_in(spec.origin, entry.attr) if spec.origin is not None else None
    if help_ is None:
        help_ = entry.dist.metadata["Summary"] if entry.dist else ""
    return " ".join((help_ or "").split("\n\n")[0].split())


def _help_in(source: str, name: str) -> str | None:
    try:
        tree = ast.parse(Path(source).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _keyword(node.decorator_list) or ast.get_docstring(node)
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return _keyword([node.value])
    return None


def _keyword(calls: list[ast.expr]) -> str | None:
    """``short_help`` or ``help``, written as it is, of one of these calls."""
    given = {
        keyword.arg: keyword.value.value
        for call in calls
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    return given.get("short_help") or given.get("help")
