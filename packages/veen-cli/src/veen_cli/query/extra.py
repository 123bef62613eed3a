"""The libraries of the extra ``service``, without which queries cannot be executed."""

from __future__ import annotations

from importlib.util import find_spec

from veen_cli.frame.exits import CommandFailed, Exit


def require_extra() -> None:
    """Raise if DuckDB or Arrow is not installed; both come with ``veen-cli[query]``."""
    missing = [name for name in ("duckdb", "pyarrow") if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"{' and '.join(missing)} cannot be imported: this installation cannot execute queries",
            Exit.USAGE,
            "install veen-cli[query]",
        )
