from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import click
import pytest

from veen_cli.frame import added_commands
from veen_cli.frame.exits import Exit
from veen_cli.frame.main import main, run
from veen_cli.frame.process import run_command
from veen_cli.query.serve import serve
from veen_core import PROTOCOL_VERSION

WORKSPACE = Path(__file__).parents[3]
GUEST = """
import click
from veen_cli.frame.exits import CommandFailed, Exit

@click.command()
@click.argument("code", type=int)
@click.option("--json", is_flag=True)
def leave(code, json):
    "Leave with a code."
    raise CommandFailed("the hub said\\nno", Exit(code))

@click.command()
@click.argument("file", type=click.File())
def read(file):
    raise click.FileError("x", "unreadable")

@click.command()
@click.option("--json", is_flag=True)
def crash(json):
    raise ZeroDivisionError

@click.command()
def interrupt():
    raise KeyboardInterrupt

@click.command()
@click.option("--json", is_flag=True)
def refused(json):
    from veen_core.rejection import Code
    from veen_hub.client import CapRefused
    raise CapRefused(Code.CAP, "no token", detail_enum="CAP_MISSING")

@click.command()
def judged():
    class Failed(click.ClickException):
        exit_code = 5
    raise Failed("two checks failed")

grouped = click.Group("grouped", help="Judge them all.\\n\\nAnd more.")
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
refused = veen_guest:refused
grouped = veen_guest:grouped
judged = veen_guest:judged
context.leave = veen_guest:leave
context.use = veen_guest:crash
"""


@pytest.fixture
def _guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution ``veen-guest`` with commands, two of them broken."""
    (tmp_path / "veen_guest.py").write_text(GUEST)
    about = tmp_path / "veen_guest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: veen-guest\nVersion: 1.0\nSummary: A guest.\n"
    )
    (about / "entry_points.txt").write_text(GUEST_ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "veen_guest", raising=False)


def test_version_lists_the_protocol_and_every_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == Exit.OK
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert lines["protocol"] == "0.0.1"
    assert lines["veen-cli"] == version("veen-cli")
    assert {"veen-core", "veen-storage", "veen-hub", "veen-overlays"} < lines.keys()


def test_version_as_json_has_the_same_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert told["protocol"] == "0.0.1"
    assert told["packages"]["veen-cli"] == version("veen-cli")
    assert list(told["packages"]) == sorted(told["packages"])


@pytest.mark.parametrize("name", ["veen", "veen-cli"])
def test_each_installed_script_runs_veen(name: str) -> None:
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


@pytest.mark.parametrize(
    ("args", "packages"),
    [
        (["selftest", "core", "--json"], "packages/veen-selftest"),
        (["spark", "--help"], "packages/veen-spark"),
    ],
    ids=["selftest", "spark"],
)
def test_a_command_of_a_missing_package_says_how_to_install_it(
    args: list[str], packages: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_commands, "entry_points", lambda **_: [])
    assert run(args) == Exit.USAGE
    told = capsys.readouterr()
    assert f"`veen {args[0]}` needs veen-{args[0]}, which is not installed" in told.err
    assert f"`pip install {packages}`" in told.err
    for package in packages.split():
        assert (WORKSPACE / package / "pyproject.toml").exists()


def test_commands_that_are_not_installed_are_listed_with_the_package_they_need(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_commands, "entry_points", lambda **_: [])
    assert run(["--help"]) == Exit.OK
    shown = "".join(capsys.readouterr().out.split())
    assert "(needsveen-spark)" in shown
    assert "(needsveen-selftest)" in shown


@pytest.mark.parametrize(
    ("args", "meant"),
    [(["sned"], "veen send"), (["hub", "strat"], "veen hub start"), (["sprak"], "veen spark")],
    ids=["command", "in a group", "of another distribution"],
)
def test_a_misspelt_command_gets_a_suggestion(
    args: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == Exit.USAGE
    assert f"did you mean `{meant}`?" in capsys.readouterr().err


def test_the_version_option_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == Exit.OK
    assert capsys.readouterr().out == f"veen {version('veen-cli')}\n"


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["nonsense", "--json"], "USAGE", Exit.USAGE),
        (["version", "--jsn", "--json"], "USAGE", Exit.USAGE),
        (["leave", "6", "--json"], "POLICY", Exit.POLICY),
        (["refused", "--json"], "CAP_MISSING", Exit.REFUSED),
        (["crash", "--json"], "BUG", Exit.BUG),
    ],
    ids=["unknown command", "unknown option", "foreseen", "refused", "bug"],
)
def test_with_json_an_error_is_one_json_object(
    args: list[str], code: str, exit_code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == exit_code
    printed = capsys.readouterr()
    error = json.loads(printed.err)["error"]
    assert printed.out == ""
    assert error.keys() == {"code", "message", "action", "exit_code"}
    assert (error["code"], error["exit_code"]) == (code, exit_code)
    assert error["message"]
    assert error["action"] or code == "POLICY"


def test_arguments_after_two_dashes_are_not_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonsense", "--", "--json"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("veen: ")


@pytest.mark.parametrize("args", [[], ["-h"], ["--help"]], ids=["bare", "short", "long"])
def test_help_goes_to_stdout(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == Exit.OK
    told = capsys.readouterr()
    assert "version" in told.out
    assert told.err == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("args", [[], ["version"], ["version", "--json"]], ids=["bare", "text", "json"])
def test_output_to_a_closed_stream_is_discarded(args: list[str], closed: str) -> None:
    python = [sys.executable, "-c", "from veen_cli.frame.main import main; main()"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *python, *args], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (Exit.OK, "")


@pytest.mark.usefixtures("_guest")
def test_commands_of_other_distributions_are_listed_and_broken_ones_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == Exit.OK
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "Leave with a code" in lines["leave"]
    assert "(broken)" in lines["gone"]
    assert "Judge them all" in lines["grouped"]
    assert "A guest" in lines["text"], "of what says nothing, what the distribution says"


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("code", [Exit.NETWORK, Exit.PROTOCOL, Exit.REFUSED, Exit.SELFTEST, Exit.POLICY])
def test_a_command_chooses_its_exit_code_and_the_message_stays_one_line(
    code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["leave", str(int(code))]) == code
    assert capsys.readouterr().err == "veen: the hub said no\n"


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("file", ["/", __file__], ids=["as an argument", "while running"])
def test_an_unreadable_file_is_a_usage_error(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["read", file]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("_guest")
def test_a_plugin_cannot_replace_the_version_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == Exit.OK
    assert "protocol" in capsys.readouterr().out


@pytest.mark.usefixtures("_guest")
@pytest.mark.parametrize("args", [["gone", "--any", "thing", "--help"], ["text"]])
def test_a_broken_plugin_says_why_it_cannot_be_loaded(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == Exit.BUG
    told = capsys.readouterr().err
    assert "of veen-guest cannot be loaded" in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("_guest")
def test_an_unexpected_exception_is_a_bug_and_its_traceback_is_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["crash"]) == Exit.BUG == 70
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert told.count("\n") == 1
    (report,) = tmp_path.glob("veen-bug-*.txt")
    assert str(report) in told
    assert "ZeroDivisionError" in report.read_text()


@pytest.mark.usefixtures("_guest")
def test_veen_traceback_prints_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEEN_TRACEBACK", "1")
    assert run(["crash"]) == Exit.BUG
    assert "Traceback" in capsys.readouterr().err


def test_a_quiet_server_writes_its_error_as_a_log_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spec-4 §10.3."""
    monkeypatch.setenv("VEEN_ROLE", "query")
    flags = ["--config", "/nonexistent/query.yaml"]
    assert run_command(serve, [*flags, "--quiet"], name="veen-query", component="query") == Exit.USAGE
    told = json.loads(capsys.readouterr().err)
    assert {name: told[name] for name in ("level", "component", "role", "event")} == {
        "level": "error",
        "component": "query",
        "role": "query",
        "event": "failed",
    }
    assert "/nonexistent/query.yaml" in told["error"]
    assert run_command(serve, flags, name="veen-query", component="query") == Exit.USAGE
    assert capsys.readouterr().err.startswith("veen-query: /nonexistent/query.yaml")


@pytest.mark.usefixtures("_guest")
def test_a_refusal_names_its_code_and_veen_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["refused"]) == Exit.REFUSED
    told = capsys.readouterr().err
    assert "E.CAP / CAP_MISSING" in told
    assert "veen explain CAP_MISSING" in told


@pytest.mark.usefixtures("_guest")
def test_a_plugin_may_exit_with_a_code_through_click(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["judged"]) == Exit.SELFTEST
    assert capsys.readouterr().err == "veen: two checks failed\n"


@pytest.mark.usefixtures("_guest")
def test_a_plugin_may_add_a_command_to_a_group_but_not_replace_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["context", "leave", "6"]) == Exit.POLICY
    assert run(["context", "--help"]) == Exit.OK
    assert "Leave with a code" in capsys.readouterr().out
    assert run(["context", "use", "nothing"]) == Exit.USAGE
    assert run(["context.leave", "6"]) == Exit.USAGE


@pytest.mark.usefixtures("_guest")
def test_ctrl_c_exits_with_130() -> None:
    assert run(["interrupt"]) == 130


def test_main_exits_with_the_commands_exit_code() -> None:
    with pytest.raises(SystemExit) as left:
        main(["nonsense"])
    assert left.value.code == 1


def test_every_installed_entry_point_loads() -> None:
    for entry in entry_points(group=added_commands.ENTRY_POINT_GROUP):
        assert isinstance(entry.load(), click.Command)


def test_the_protocol_version_shown_is_that_of_veen_core(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["protocol"] == PROTOCOL_VERSION


def test_the_help_is_fast_because_it_imports_neither_client_nor_protocol() -> None:
    code = (
        "import sys, veen_cli.frame.main as m; code = m.run(['--help']); "
        "sys.exit(code or bool({'veen_core', 'aiohttp', 'rich', 'veen_hub'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_ctrl_c_ends_a_running_command_without_output(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("veen")
    code = "import time; print('up', flush=True); time.sleep(60)"
    (tmp_path / "veen_slow.py").write_text(f"import click\n@click.command()\ndef slow():\n    {code}\n")
    about = tmp_path / "veen_slow-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: veen-slow\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[veen.commands]\nslow = veen_slow:slow\n")
    running = subprocess.Popen(
        [script, "slow"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out, err.strip()) == (130, "", "")


@pytest.mark.parametrize("words", ["version", "--help", "hub", "hub --help", "version --help"])
def test_a_closed_pipe_ends_the_command_without_output(words: str) -> None:
    script = Path(sys.executable).with_name("veen")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([script, *words.split()], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (Exit.PIPE, b"")
