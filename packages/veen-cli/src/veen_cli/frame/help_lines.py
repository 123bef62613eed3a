"""One line of help for a command of another distribution, read from its source without importing it.

Importing it may take a second (an HTTP client, a JVM), and ``veen --help`` must answer in a quarter of one.
"""

from __future__ import annotations

import ast
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path


def help_line(entry: EntryPoint) -> str:
    """Return the first paragraph of the command's help; else its distribution's summary."""
    distribution = entry.dist.name if entry.dist else "an unknown distribution"
    try:
        spec = find_spec(entry.module)  # ``find_spec`` imports the parent packages, not the module itself
    except Exception:  # noqa: BLE001 - the parent package is another distribution's code
        spec = None
    if spec is None:
        return f"(broken) {distribution} cannot be loaded"
    help_ = _help_in(spec.origin, entry.attr) if spec.origin is not None else None
    if help_ is None:
        help_ = entry.dist.metadata["Summary"] if entry.dist else ""
    return " ".join((help_ or "").split("\n\n")[0].split())


def _help_in(source: str, name: str) -> str | None:
    """Return the help of the function or variable ``name`` in a source file."""
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
    """Return the literal ``short_help`` or ``help`` argument of the first call that has one."""
    given = {
        keyword.arg: keyword.value.value
        for call in calls
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    return given.get("short_help") or given.get("help")
