"""Errors name the object and the next step."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from veen_cli.frame.error_report import SYSTEM_ACTIONS, report_of
from veen_cli.frame.exits import Exit
from veen_cli.frame.process import ErrorReport
from veen_core.errors import StateError
from veen_core.ids import ClientId, HubId
from veen_hub.client import FileStateStore
from veen_hub.client.errors import BoundsReached

from .conftest import STREAM, Town
from .running import veen

HUGE = "9" * 5_000
"""More digits than Python converts."""


@contextlib.contextmanager
def no_hub() -> Iterator[str]:
    """Run a web server that is not a hub."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b"<html>nothing here</html>")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_body_that_is_too_large_is_a_usage_error(town: Town, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2_000_000)
    for more in ((), ("--batch",)):
        told = town.as_("alice", "send", "-s", STREAM, "--file", tmp_path / "big", *more)
        assert told.code == Exit.USAGE
        assert "--attach" in told.err
        assert "inspect" not in told.err


def test_an_attachment_that_is_too_large_is_a_usage_error(town: Town, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 * 1_048_576 + 1)
    told = town.as_("alice", "send", "x", "-s", STREAM, "--attach", tmp_path / "big").failed(Exit.USAGE)
    assert "max_attachment_bytes" in told
    assert "attach less" in told
    assert "--client" not in told


def test_a_folder_without_an_identity_is_refused_before_any_request(town: Town) -> None:
    for words in (("receipt", "get", 1, "-s", STREAM), ("stream", "-s", STREAM)):
        told = town.as_("nobody", *words).failed(Exit.USAGE)
        assert "nobody holds no identity; check the name, or create one with `veen keygen" in told
    assert not (town / "nobody").exists()


def test_a_misspelt_name_shows_the_identity_or_hub_that_exists_and_no_way_to_create_one(town: Town) -> None:
    issue = ("cap", "issue", "--stream", STREAM, "--ttl", "1h", "--out", town / "x.cap")
    for words, meant in (
        (("send", "x", "-s", STREAM, "--client", town / "alcie", "--hub", town.url), "alice"),
        ((*issue, "--issuer", town / "admni", "--subject", town / "alice"), "admin"),
        ((*issue, "--issuer", town / "admin", "--subject", town / "alcie"), "alice"),
        (("hub", "fsck", "--data-dir", town / "hbu"), "hub"),
    ):
        told = veen(*words).failed(Exit.USAGE)
        assert f"did you mean {town / meant}?" in told
        assert "keygen" not in told


def test_an_unwritable_receipt_file_is_refused_before_the_message_is_sent(town: Town, tmp_path: Path) -> None:
    before = town.as_("alice", "resync", "-s", STREAM, "--json").json["stream_seq"]
    for file in (tmp_path / "nowhere" / "receipt", tmp_path):
        told = town.as_("alice", "send", "x", "-s", STREAM, "--receipt", file).failed(Exit.USAGE)
        assert "--receipt" in told
    assert town.as_("alice", "resync", "-s", STREAM, "--json").json["stream_seq"] == before


def test_empty_stdin_is_refused_and_an_empty_argument_is_sent(town: Town) -> None:
    assert "stdin was empty" in town.as_("alice", "send", "-s", STREAM).failed(Exit.USAGE)
    assert "stdin was empty" in town.as_("alice", "send", "-", "-s", STREAM).failed(Exit.USAGE)
    town.as_("alice", "send", "", "-s", STREAM).ok()


def test_a_malformed_hub_address_shows_a_correct_one(town: Town) -> None:
    tls = veen("hub", "status", "--hub", town.url.replace("http", "https")).failed(Exit.NETWORK)
    assert "write http://" in tls
    assert "ssl:default" not in tls
    path = veen("hub", "status", "--hub", f"{town.url}/v1").failed(Exit.REFUSED)
    assert "remove the path" in path
    veen("hub", "health", "--hub", f"{town.url}/v1").failed(Exit.PROTOCOL)
    for wrong in ("localhost:8080", "http://", "http://hub:port", "ftp://hub"):
        assert "--hub" in veen("hub", "status", "--hub", wrong).failed(Exit.USAGE)


def test_a_server_that_is_no_hub_is_not_reported_as_evidence() -> None:
    with no_hub() as url:
        for words in (("hub", "status"), ("hub", "health")):
            told = veen(*words, "--hub", url).failed(Exit.PROTOCOL)
            assert "--hub" in told
            assert "evidence" not in told


@pytest.mark.parametrize("command", ["status", "health", "metrics"])
def test_a_silent_hub_is_waited_for_as_long_as_wait_says(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait there; nobody takes them
        url, begun = f"http://127.0.0.1:{silent.getsockname()[1]}", time.monotonic()
        where = ("--hub", url, "--probes", url) if command == "metrics" else ("--hub", url)
        told = veen("hub", command, *where, "--wait", "0.6").failed(Exit.NETWORK)
    assert "no answer in" in told
    assert 0.5 < time.monotonic() - begun < 5


def test_a_malformed_pin_is_a_usage_error(town: Town) -> None:
    told = veen("send", "x", "-s", "s", "--hub", town.url, "--trust", "zz", "--client", town / "alice")
    assert "64 hex digits" in told.failed(Exit.USAGE)
    assert "do not send" not in told.err


@pytest.fixture
def alice(town: Town, tmp_path: Path) -> Path:
    town.as_("alice", "send", "so that there is state", "-s", STREAM).ok()
    return Path(shutil.copytree(town / "alice", tmp_path / "alice"))


def test_a_damaged_file_of_an_identity_is_named(town: Town, alice: Path) -> None:
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", alice)
    rows = veen("streams", "--client", alice, "--json").json["hubs"][0]["streams"]
    unused = {row["label"] for row in rows if row["stream"] not in (STREAM, "veen/control")}
    records = [file for file in alice.glob("state/*/*.state") if file.stem not in unused]
    for file in [*records, alice / "secrets.cbor"]:
        before = file.read_bytes()
        file.write_bytes(b"\xff")
        assert str(file) in veen("send", "x", "-s", STREAM, *flags).failed(Exit.PROTOCOL)
        if file.suffix == ".state":
            failed = veen("verify-state", "--client", alice, "--json")
            assert failed.code == Exit.PROTOCOL
            told = json.loads(failed.out)
            assert told["holds"] is False
            assert str(file) in told["why"]
        file.write_bytes(before)
    veen("verify-state", "--client", alice).ok()


def test_a_file_that_is_not_a_token_is_named(town: Town, tmp_path: Path) -> None:
    file = tmp_path / "no.cap"
    file.write_bytes(b"\xff")
    for words in (
        ("cap", "inspect", file),
        ("cap", "status", file, "--hub", town.url, "--trust", town.hub_id),
    ):
        assert f"veen inspect {file}" in veen(*words).failed(Exit.PROTOCOL)


def test_a_missing_file_says_what_to_check(tmp_path: Path) -> None:
    assert "check the name" in veen("inspect", tmp_path / "nothing").failed(Exit.USAGE)
    assert "name a file" in veen("inspect", tmp_path).failed(Exit.USAGE)
    (tmp_path / "odd").write_bytes(b"\xff")
    shown = veen("receipt", "show", tmp_path / "odd").failed(Exit.PROTOCOL)
    assert f"veen inspect {tmp_path / 'odd'}" in shown


@pytest.mark.parametrize("number", sorted(SYSTEM_ACTIONS))
def test_an_error_of_the_operating_system_has_a_next_step(number: int) -> None:
    report = report_of(OSError(number, os.strerror(number), "/some/file"))
    assert report == ErrorReport(f"/some/file: {os.strerror(number)}", Exit.USAGE, SYSTEM_ACTIONS[number])
    assert report_of(OSError("odd")) == ErrorReport("odd", Exit.USAGE)


def test_the_error_for_a_file_in_place_of_the_state_folder_has_a_next_step(town: Town, alice: Path) -> None:
    shutil.rmtree(alice / "state")
    (alice / "state").write_bytes(b"in the way")
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", alice)
    told = veen("send", "x", "-s", STREAM, *flags).failed(Exit.USAGE)
    assert str(alice / "state") in told
    assert SYSTEM_ACTIONS[errno.ENOTDIR] in told


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EACCES, SYSTEM_ACTIONS[errno.EACCES]),
        (errno.EROFS, SYSTEM_ACTIONS[errno.EROFS]),
        (errno.EIO, "check that folder, and the disk"),
    ],
    ids=["not-ours", "read-only", "disk"],
)
def test_the_error_for_a_state_folder_that_the_system_refuses_has_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    store = FileStateStore(tmp_path)
    for use in (lambda: store.lock(HubId(bytes(32)), "x"), lambda: store.save(HubId(bytes(32)), "x", b"")):
        with pytest.raises(StateError) as refused:
            use()
        report = report_of(refused.value)
        assert report is not None
        assert report.message.startswith(str(tmp_path))
        assert hint in (report.action or "")
        assert report.exit_code == Exit.USAGE


def test_an_action_of_the_client_library_becomes_a_command() -> None:
    report = report_of(BoundsReached(ClientId(bytes(32))))
    assert report is not None
    assert "veen id client-id --renew" in (report.action or "")
    assert "stream." not in report.line
    assert report.exit_code == Exit.POLICY


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stream", "-s", "s", "--from", "x"], "'x' is not an integer ≥ 0"),
        (["hub", "start", "-d", "hub", "--port", "99999"], "not an integer from 0 to 65535"),
        (
            ["cap", "issue", "--issuer", "a", "--subject", "b", "-s", "s", "--out", "t", "--ttl", "0"],
            "too short: at least 1 second",
        ),
        (
            ["cap", "issue", "--issuer", "a", "--subject", "b", "-s", "s", "--out", "t", "--rate=100001,1"],
            "above the maximum of 100000,1000000",
        ),
        (
            ["cap", "issue", "--issuer", "a", "--subject", "b", "-s", "s", "--out", "t", "--rate", "0,0"],
            "allows no message: the burst must be at least 1",
        ),
        (
            [
                "cap",
                "issue",
                "--issuer",
                "a",
                "--subject",
                "b",
                "-s",
                "s",
                "--out",
                "t",
                "--rate",
                f"1,{HUGE}",
            ],
            "above the maximum",
        ),
        (["stream", "-s", "s", "--from", str(2**64)], "is larger than 18446744"),
        (["receipt", "get", str(2**64), "-s", "s"], "is larger than 18446744"),
        (
            ["wallet", "adjust", "w", "--by", f"-{2**64}", "--reason", "r"],
            "is not an integer",
        ),
        (["wallet", "adjust", "w", "--by", "much", "--reason", "r"], "is not an integer"),
        (["send", "x", "-s", "s", "--expires", HUGE], "is after the year 9999"),
        (["explain", HUGE], "there is no code"),
        (
            ["proof", "get", "5", "--against", "3", "-s", "s", "--hub", "http://127.0.0.1:9"],
            "message 5 is not among the first 3",
        ),
        (["id", "rotate", "--ttl", "0d"], "too short: at least 1 second"),
        (["send", "x", "-s", "s", "--expires", "0"], "has passed"),
        (["send", "x", "-s", "s", "--expires", "2020-01-01"], "has passed"),
        (["send", "x", "-s", "s", "--expires", "soon"], "is not a time"),
        (["hub", "export", "-d", "hub", "--out", "x", "--since", "9" * 20], "is after the year 9999"),
        (["stream", "-s", "s", "--wait", "-1"], "not a number of seconds"),
        (["stream", "-s", "s", "--wait", "nan"], "not a number of seconds"),
        (["stream", "-s", ""], "--stream is empty"),
        (["stream", "-s", "s", "--hub", ""], "--hub is empty"),
        (["keygen", "--no-passphrase", "--out", ""], "--out is empty"),
        (["cap", "issue", "--issuer", "", "--subject", "a", "-s", "s", "--out", "t"], "--issuer is empty"),
        (["hub", "clone", "-d", "hub", "--out="], "--out is empty"),
        (["hub", "export", "-d", "hub", "--out", "x", "--label", "zz"], "is not a label of 64 hex digits"),
        (["pay", "zz", "ab" * 32, "1", "--type", "t", "-s", "s"], "is not an account_id of 64 hex digits"),
        (["label-class", "show", "", "--realm", "r", "--hub", "http://127.0.0.1:9"], "is not a label in hex"),
    ],
)
def test_absurd_numbers_and_times_are_refused(words: list[str], said: str) -> None:
    assert said in veen(*words).failed(Exit.USAGE)


def test_a_missing_object_is_reported_in_the_users_terms(town: Town, tmp_path: Path) -> None:
    town.as_("alice", "send", "so that there is a stream", "-s", STREAM).ok()
    for words in (("receipt", "get", 99_999), ("proof", "get", 99_999), ("consistency", "get", 1, 99_999)):
        told = town.as_("bob", *words, "-s", STREAM).failed(Exit.REFUSED)
        assert f"the hub has no such entry of stream {STREAM}" in told
    parent = town.as_("alice", "send", "x", "-s", STREAM, "--parent", 99_999).failed(Exit.REFUSED)
    assert "--parent 99999: the stream has no such message; see its messages with `veen stream`" in parent
    assert "label" not in parent
    for seq in (0, 2**64):
        none = town.as_("alice", "send", "x", "-s", STREAM, "--parent", seq).failed(Exit.USAGE)
        assert "is neither a stream_seq ≥ 1" in none
    unseen = town.as_("bob", "cap", "status", "ab" * 32).failed(Exit.REFUSED)
    assert "veen cap authorize" in unseen
    assert "stream" not in unseen
    anothers = town.as_("bob", "send", "bare", "-s", STREAM, "--cap", town / "alice.cap")
    assert "`veen id client-id`" in anothers.failed(Exit.USAGE)
    seq = town.as_("alice", "send", "bare", "-s", STREAM, "--json").json["stream_seq"]
    absent = town.as_("alice", "attachment", "get", 99_999, "-s", STREAM, "--out", tmp_path / "a")
    assert f"see its messages with `veen stream --stream {STREAM}`" in absent.failed(Exit.REFUSED)
    bare = town.as_("alice", "attachment", "get", seq, "-s", STREAM, "--out", tmp_path / "a")
    assert f"message {seq} has no attachment" in bare.failed(Exit.USAGE)


def test_an_export_of_a_missing_range_names_the_stream(town: Town, tmp_path: Path) -> None:
    town.as_("alice", "send", "so that there is a stream", "-s", STREAM).ok()
    for words, said in (
        (("-s", "nothing"), "stream nothing: "),
        (("-s", STREAM, "--upto", 99_999), " entries: 1 to 99999 cannot be exported; check"),
        (("-s", STREAM, "--since", 4_000_000_000), f"stream {STREAM}: "),
    ):
        told = veen("hub", "export", "-d", town / "hub", *words, "--out", tmp_path / "x").failed(Exit.USAGE)
        assert said in told


def test_a_locked_data_directory_says_how_to_stop_its_hub(town: Town) -> None:
    assert "veen hub stop" in veen("hub", "fsck", "-d", town / "hub").failed(Exit.USAGE)


def test_a_copy_refuses_a_folder_that_is_not_empty(town: Town, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    for words in (("clone",), ("fork", "--admin", town / "admin"), ("export", "-s", STREAM)):
        told = veen("hub", *words, "-d", town / "hub", "--out", tmp_path / "full").failed(Exit.USAGE)
        assert "choose another folder for --out" in told


def test_a_suggested_command_quotes_names_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unquoted space would make one name two arguments."""
    monkeypatch.chdir(tmp_path)
    missing = veen("hub", "start", "--data-dir", "my hub").failed(Exit.USAGE)
    assert "`veen hub init -d 'my hub'`" in missing
    assert "--data-dir 'my hub' --open" in veen("hub", "init", "--data-dir", "my hub", "--no-admin").ok().out
    Path("a receipt").write_bytes(b"none")
    assert "`veen inspect 'a receipt'`" in veen("receipt", "show", "a receipt").failed(Exit.PROTOCOL)
    assert "add 'at work' --hub" in veen("context", "use", "at work").failed(Exit.USAGE)
