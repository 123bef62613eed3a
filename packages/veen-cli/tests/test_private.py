"""Private files (data directories, logs, attachments), and the warning about plain HTTP."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from veen_cli.arguments import private_files
from veen_cli.frame.exits import CommandFailed
from veen_cli.frame.output import Output
from veen_cli.hub.process import warn

from .conftest import STREAM, Town
from .running import end_hubs, process, veen


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_data_directory_and_its_copies_are_private_to_their_owner(tmp_path: Path) -> None:
    veen("keygen", "--out", tmp_path / "admin", "--no-passphrase").ok()
    data = ("--data-dir", tmp_path / "hub")
    veen("hub", "init", *data, "--admin", tmp_path / "admin").ok()
    veen("hub", "clone", *data, "--out", tmp_path / "clone").ok()
    veen("hub", "fork", *data, "--out", tmp_path / "fork", "--admin", tmp_path / "admin").ok()
    for name in ("hub", "clone", "fork"):
        assert mode(tmp_path / name) == 0o700, name


def test_the_log_of_a_detached_hub_is_private_to_its_owner(town: Town) -> None:
    assert mode(town / "hub.log") == 0o600


def test_an_opened_attachment_is_written_private_to_its_reader(town: Town, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("between us")
    send = ("send", "see", "-s", STREAM, "--to", town / "bob", "--attach", tmp_path / "plain")
    told = town.as_("alice", *send, "--json").json
    got, seq = tmp_path / "got", told["stream_seq"]
    town.as_("bob", "attachment", "get", seq, "-s", STREAM, "--out", got).ok()
    assert (mode(got), got.read_text()) == (0o600, "between us")
    got.write_text("something else")
    failed = town.as_("bob", "attachment", "verify", got, seq, "-s", STREAM, "--json")
    assert failed.code == 3
    assert '"holds": false' in failed.out


def test_a_secret_that_others_can_read_is_refused_but_a_pipe_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x")
    for shared in (0o640, 0o604):
        file.chmod(shared)
        with pytest.raises(CommandFailed, match="chmod 600"):
            private_files.refuse_if_shared(file)
    file.chmod(0o400)
    private_files.refuse_if_shared(file)
    private_files.refuse_if_shared(Path("/dev/null"))


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://127.0.0.1:8080", False),
        ("http://[::1]:8080", False),
        ("https://0.0.0.0:8080", False),
        ("http://0.0.0.0:8080", True),
        ("http://[::]:8080", True),
        ("http://192.0.2.1:8080", True),
    ],
)
def test_plain_http_beyond_loopback_prints_a_warning(
    url: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bool(warn(Output(quiet=True), url)) is warned
    assert ("plain HTTP" in capsys.readouterr().err) is warned


def test_a_hub_reachable_without_tls_warns_on_stderr_and_in_its_log(tmp_path: Path) -> None:
    veen("hub", "init", "-d", tmp_path / "hub", "--no-admin").ok()
    start = ("hub", "start", "-d", tmp_path / "hub", "--host", "0.0.0.0", "--port", 0, "--detach")
    try:
        done = process(tmp_path, *start, "--quiet")
        assert (done.code, done.out) == (0, "")
        assert done.err.startswith("warning: http://0.0.0.0:")
        assert "set tls in hub.yaml" in (tmp_path / "hub.log").read_text()
        veen("hub", "stop", "-d", tmp_path / "hub").ok()
        assert "plain HTTP" in process(tmp_path, *start, "--json").json["warnings"][0]
        veen("hub", "stop", "-d", tmp_path / "hub").ok()
    finally:
        end_hubs(tmp_path)
