from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from veen_cli.frame import settings
from veen_cli.frame.exits import Exit
from veen_cli.frame.main import run
from veen_cli.frame.settings import parse_hub_url

from .conftest import STREAM, Town
from .running import veen

TELLER = """
import click

@click.command()
@click.option("--hub", envvar="VEEN_HUB")
@click.argument("stream", required=False)
def told(hub, stream):
    print(hub, stream)

many = click.Group("many", {"told": told})
"""


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEEN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("VEEN_CONTEXT", raising=False)


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert run([*args, "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_first_context_becomes_current_and_a_later_one_only_with_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(capsys, "context", "add", "one", "--hub", "http://127.0.0.1:1")["in_use"] is True
    assert told(capsys, "context", "add", "two", "--hub", "http://127.0.0.1:2")["in_use"] is False
    assert settings.value_or_context("hub", None) == "http://127.0.0.1:1"
    told(capsys, "context", "use", "two")
    assert settings.value_or_context("hub", None) == "http://127.0.0.1:2"
    assert told(capsys, "context", "list") == {
        "current": "two",
        "contexts": {"one": {"hub": "http://127.0.0.1:1"}, "two": {"hub": "http://127.0.0.1:2"}},
    }


def test_a_flag_overrides_the_context_and_veen_context_selects_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told(capsys, "context", "add", "one", "--hub", "http://127.0.0.1:1")
    told(capsys, "context", "add", "two", "--hub", "http://127.0.0.1:2")
    assert settings.value_or_context("hub", "http://flag") == "http://flag"
    assert run(["hub", "health"]) == Exit.NETWORK
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    assert run(["--context", "two", "hub", "health"]) == Exit.NETWORK
    assert "http://127.0.0.1:2" in capsys.readouterr().err
    monkeypatch.setenv("VEEN_CONTEXT", "two")
    assert run(["hub", "health"]) == Exit.NETWORK
    assert "http://127.0.0.1:2" in capsys.readouterr().err
    assert run(["--context", "three", "hub", "health"]) == Exit.USAGE


def test_the_context_flag_overrides_variables_but_not_flags(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told(capsys, "context", "add", "one", "--hub", "http://127.0.0.1:1")
    told(capsys, "context", "add", "two", "--hub", "http://127.0.0.1:2")
    monkeypatch.setenv("VEEN_HUB", "http://127.0.0.1:3")
    for words, port in ([], 3), (["--context", "two"], 2):
        assert run([*words, "hub", "health"]) == Exit.NETWORK
        assert f"http://127.0.0.1:{port}" in capsys.readouterr().err
    assert run(["--context", "two", "hub", "health", "--hub", "http://127.0.0.1:4"]) == Exit.NETWORK
    assert "http://127.0.0.1:4" in capsys.readouterr().err
    monkeypatch.setenv("VEEN_CONTEXT", "two")
    assert run(["hub", "health"]) == Exit.NETWORK
    assert "http://127.0.0.1:3" in capsys.readouterr().err


def test_the_context_flag_after_the_command_is_told_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hub", "health", "--context", "two"]) == Exit.USAGE
    assert "write it before the command: `veen --context NAME" in capsys.readouterr().err


def test_a_context_stores_absolute_paths(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "context", "add", "here", "--client", "me")["client"] == str(tmp_path / "me")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--hub", "127.0.0.1:8080"],
        ["--hub", "http://hub.example:none"],
        ["--trust", "zz"],
        ["--trust", "ab" * 31],
        ["--ca", "/nowhere.pem"],
        [],
    ],
    ids=["no scheme", "no port", "no hex", "too short", "no authority", "nothing"],
)
def test_a_context_refuses_values_that_no_command_accepts(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["context", "add", "one", *wrong]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1
    assert settings.load() == settings.Contexts()


def test_a_context_accepts_a_missing_folder_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["context", "add", "one", "--client", "nobody"]) == Exit.OK
    assert "nobody does not exist yet" in capsys.readouterr().err


def test_a_plugin_gets_context_values_unless_a_flag_or_variable_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "veen_told.py").write_text(TELLER)
    about = tmp_path / "veen_told-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: veen-told\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[veen.commands]\ntold = veen_told:told\nmany = veen_told:many\n")
    monkeypatch.syspath_prepend(tmp_path)
    told(capsys, "context", "add", "one", "--hub", "http://127.0.0.1:1", "--stream", "orders")
    for command in (["told"], ["many", "told"]):
        assert run(command) == Exit.OK
        assert capsys.readouterr().out == "http://127.0.0.1:1 None\n", "an argument is not filled in"
    assert run(["told", "--hub", "http://flag"]) == Exit.OK
    assert capsys.readouterr().out == "http://flag None\n"
    monkeypatch.setenv("VEEN_HUB", "http://variable")
    assert run(["told"]) == Exit.OK
    assert capsys.readouterr().out == "http://variable None\n"


def test_an_unknown_context_says_how_to_create_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["context", "use", "nowhere"]) == Exit.USAGE
    assert "veen context add nowhere" in capsys.readouterr().err
    assert run(["context", "remove", "nowhere"]) == Exit.USAGE


def test_removing_the_current_context_leaves_none_current(capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "context", "add", "one", "--hub", "http://127.0.0.1:1")
    told(capsys, "context", "remove", "one")
    assert settings.current_context() == settings.SavedContext()
    assert run(["context", "list"]) == Exit.OK
    assert "veen context add" in capsys.readouterr().out


def test_a_damaged_contexts_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    settings.path().parent.mkdir()
    settings.path().write_text('{"contexts": []}')
    assert run(["context", "list"]) == Exit.USAGE
    assert str(settings.path()) in capsys.readouterr().err


REGISTERS = {
    "bash": ["complete -o nosort -F _veen_completion veen", "_veen_completion_setup;"],
    "zsh": ["#compdef veen", "_veen_completion() {", "compdef _veen_completion veen"],
    "fish": ['complete --no-files --command veen --arguments "(_veen_completion)";'],
}
"""Lines that register the completion in each shell; test_terminal runs the scripts."""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == Exit.OK
    script = capsys.readouterr().out
    assert f"_VEEN_COMPLETE={shell}_complete" in script
    for line in REGISTERS[shell]:
        assert line in [each.strip() for each in script.splitlines()]


def test_an_export_uses_the_contexts_stream_unless_a_label_is_given(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = town.as_("alice", "send", "something to export", "-s", STREAM, "--json").json["label"]
    export = ("hub", "export", "--data-dir", town / "hub", "--json", "--out")
    assert "--stream NAME or --label" in veen(*export, tmp_path / "none").err
    monkeypatch.setenv("VEEN_STREAM", STREAM)
    assert veen(*export, tmp_path / "of-stream").json["label"] == label
    assert veen(*export, tmp_path / "of-label", "--label", label).json["label"] == label
    veen("context", "add", "here", "--stream", STREAM).ok()
    monkeypatch.delenv("VEEN_STREAM")
    assert veen(*export, tmp_path / "of-context").json["label"] == label


@pytest.mark.parametrize("url", ["h3://h:1", "nats://h/p", "tls://h:1/p", "file:///spool"])
def test_an_address_of_another_transport_is_one_of_a_hub_but_not_of_probes(url: str) -> None:
    assert parse_hub_url(url) == url
    with pytest.raises(click.UsageError, match="--probes"):
        parse_hub_url(url, "--probes")


def test_an_address_with_a_password_is_neither_taken_nor_shown() -> None:
    with pytest.raises(click.UsageError, match="password") as raised:
        parse_hub_url("nats://user:word@h/p")
    assert "word@" not in str(raised.value)
