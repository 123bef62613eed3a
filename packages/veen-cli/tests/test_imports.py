"""A command imports only what it uses, so that it starts fast."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

from veen_cli.frame.imports import without_collection

from .conftest import Town

RUN_AND_LIST = """
import json, sys
from veen_cli.frame.main import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
SERVER = (
    "veen_hub.hub",
    "veen_hub.main",
    "veen_hub.api",
    "veen_hub.http",
    "veen_hub.admission",
    "veen_hub.pipeline",
)


def imported(*args: str) -> set[str]:
    """Run a command in a new process; return the modules that are loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_LIST, *args], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stderr)
    assert code == 0
    return set(modules)


def of_packages(modules: set[str], *packages: str) -> set[str]:
    return {name for name in modules if name.startswith(tuple(f"{package}." for package in packages))}


def test_send_loads_neither_the_server_nor_the_storage_nor_the_overlays(square: Town) -> None:
    flags = ("--hub", square.url, "--trust", square.hub_id, "--client", str(square / "alice"))
    modules = imported("send", "hello", "-s", "imports", *flags)
    assert "veen_hub.client.hub" in modules
    assert not modules & set(SERVER)
    assert not of_packages(modules, "veen_storage", "veen_overlays", "veen_bridge", "veen_spark")
    unused = {"aiohttp", "lmdb", "yaml", "zstandard", "rich", "prometheus_client", "importlib.metadata"}
    assert not modules & unused


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["hub", "--help"]], ids=" ".join)
def test_a_command_that_needs_no_hub_loads_no_client(args: list[str]) -> None:
    modules = imported(*args)
    assert not of_packages(modules, "veen_core", "veen_hub", "veen_storage")
    assert not modules & {"aiohttp", "asyncio", "ssl", "nacl"}


def test_the_version_needs_no_metadata_of_installed_packages() -> None:
    assert "importlib.metadata" not in imported("--version")


def test_collection_is_paused_during_imports_and_resumed_even_if_one_fails() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    with pytest.raises(ImportError, match=r"^paused"), without_collection():
        raise ImportError("paused" if not gc.isenabled() else "not paused")
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen  # this process is not the command line's
