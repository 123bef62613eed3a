"""The guide docs/guides/spark-query.md: its commands print what the guide shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .commands import run
from .logs import Hub, reader_key
from .recorder_hub import LOGIN, READER, fill

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "spark-query.md"


def printed(command: str) -> str:
    """Run a command of the guide in the current folder; return stdout and stderr."""
    program, group, *rest = shlex.split(command)
    assert program == "veen"
    if group == "spark":
        result = run(*rest)
        assert result.exit_code == 0, result.stderr
        return result.stdout + result.stderr
    veen, home = Path(sys.executable).with_name("veen"), str(Path.cwd())  # contexts of the user do not count
    own = {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}
    done = subprocess.run(
        [veen, group, *rest],
        capture_output=True,
        text=True,
        check=False,
        env=own | {"HOME": home, "XDG_CONFIG_HOME": home},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("spark")
def test_the_commands_of_the_guide_print_what_it_shows(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(hub)
    hub.export(LOGIN, tmp_path / "exports" / "login")
    hub.clone(tmp_path / "clone")
    (tmp_path / "reader").write_bytes(bytes(reader_key(READER).secret))
    (tmp_path / "reader").chmod(0o600)
    text = GUIDE.read_text("utf-8")
    blocks = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    for name, block in zip(("failures", "by-user"), blocks, strict=True):
        (tmp_path / f"{name}.json").write_text(block)
    steps = re.findall(r"```console\n\$ (.*?)\n(.*?)```", text, re.DOTALL)
    assert len(steps) == 4
    shown = {command: (printed(command), output) for command, output in steps}
    assert {command: found for command, (found, _) in shown.items()} == {
        command: output for command, (_, output) in shown.items()
    }
