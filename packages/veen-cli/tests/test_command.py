from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import click
import pytest

from veen_cli import commands
from veen_cli.exits import Exit
from veen_cli.main import main, run, veen

GUEST = """
import click
from veen_cli.exits import CommandFailed, Exit

@click.command()
@click.argument("code", type=int)
def leave(code):
    "Leave with a code."
    raise CommandFailed("the hub said\\nno", Exit(code))

@click.command()
@click.argument("file", type=click.File())
def read(file):
    raise click.FileError("x", "unreadable")

@click.command()
def crash():
    raise ZeroDivisionError

@click.command()
def interrupt():
    raise KeyboardInterrupt

text = "not a command"
"""

GUEST_ENTRY_POINTS = """
[veen.commands]
leave = veen_guest:leave
read = veen_guest:read
crash = veen_guest:crash
interrupt = veen_guest:interrupt
version = veen_guest:crash
text = veen_guest:text
gone = veen_guest.gone:command
"""


@pytest.fixture
def _guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution ``veen-guest`` is installed: it brings commands, two of them broken."""
    (tmp_path / "veen_guest.py").write_text(GUEST)
    about = tmp_path / "veen_guest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: veen-guest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(GUEST_ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "veen_guest", raising=False)


def test_version_lists_the_protocol_and_every_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == Exit.OK
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert lines["protocol"] == "0.0.1"
    assert lines["veen-cli"] == version("veen-cli")
    assert {"veen-core", "veen-storage", "veen-hub", "veen-overlays"} < lines.keys()


def test_version_as_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert told["protocol"] == "0.0.1"
    assert told["packages"]["veen-cli"] == version("veen-cli")
    assert list(told["packages"]) == sorted(told["packages"])


@pytest.mark.parametrize("name", ["veen", "veen-cli"])
def test_both_names_start_the_command(name: str) -> None:
    script = Path(sys.executable).with_name(name)
    done = subprocess.run([script, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("protocol")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "args",
    [["nonsense"], ["--nonsense"], ["version", "--jsn"], ["version", "extra"]],
    ids=["unknown command", "unknown option", "mistyped option", "extra argument"],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_1(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("veen: ")
    assert told.err.count("\n") == 1
    assert "--help" in told.err


@pytest.mark.parametrize("args", [[], ["-h"], ["--help"]], ids=["bare", "short", "long"])
def test_help_goes_to_stdout(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == Exit.OK
    told = capsys.readouterr()
    assert "version" in told.out
    assert told.err == ""


@pytest.mark.usefixtures("_guest")
def test_commands_of_other_distributions_are_listed_and_broken_ones_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == Exit.OK
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "Leave with a code" in lines["leave"]
    assert "(broken)" in lines["gone"]
    assert "(broken)" in lines["text"]


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("code", [Exit.NETWORK, Exit.PROTOCOL, Exit.REFUSED, Exit.SELFTEST, Exit.POLICY])
def test_a_command_chooses_its_exit_code_and_the_message_stays_one_line(
    code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["leave", str(int(code))]) == code
    assert capsys.readouterr().err == "veen: the hub said no\n"


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("file", ["/", __file__], ids=["as an argument", "while running"])
def test_an_unreadable_file_is_wrong_usage(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", file]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("_guest")
def test_the_own_version_command_cannot_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == Exit.OK
    assert "protocol" in capsys.readouterr().out


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("args", [["gone", "--any", "thing", "--help"], ["text"]])
def test_a_broken_command_says_why(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == Exit.BUG
    told = capsys.readouterr().err
    assert "of veen-guest cannot be loaded" in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("_guest")
def test_an_unforeseen_exception_is_a_bug_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crash"]) == Exit.BUG == 70
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told
    assert told.splitlines()[-1].startswith("veen: this is a bug")


@pytest.mark.usefixtures("_guest")
def test_an_interrupt_ends_as_shells_expect() -> None:
    assert run(["interrupt"]) == 130


def test_main_exits_with_the_code() -> None:
    with pytest.raises(SystemExit) as left:
        main(["nonsense"])
    assert left.value.code == 1


def test_every_installed_entry_point_loads() -> None:
    for entry in entry_points(group=commands.ENTRY_POINT_GROUP):
        assert isinstance(entry.load(), click.Command)
        assert veen.get_command(click.Context(veen), entry.name) is not None
