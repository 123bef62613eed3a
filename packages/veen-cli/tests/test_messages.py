"""veen send, stream, attachment and resync against one real hub process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from veen_cli.commands.line_input import split_lines
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import escape_controls

from .conftest import STREAM, Town
from .running import SCRIPTS, environment, process, veen


@pytest.fixture(scope="session")
def sent(town: Town) -> dict[str, object]:
    """Send one message with an attachment from Alice to Bob."""
    (town / "note.txt").write_text("the fine print\n")
    done = town.as_(
        "alice",
        "send",
        "see attached",
        "-s",
        STREAM,
        "--to",
        town / "bob",
        "--attach",
        town / "note.txt",
        "--json",
    )
    found: dict[str, object] = done.json
    return found


def read(town: Town, who: str, *args: object) -> dict[str, object]:
    found: dict[str, object] = town.as_(who, "stream", "-s", STREAM, *args, "--json").json
    return found


def test_only_the_reader_a_message_is_sealed_to_can_open_it(town: Town) -> None:
    told = town.as_("alice", "send", "two coffees", "-s", STREAM, "--to", town / "bob", "--json").json
    at = told["stream_seq"]
    (message,) = read(town, "bob", "--from", at, "--upto", at)["messages"]  # type: ignore[misc, attr-defined]
    assert (message["text"], message["id"], message["open"]) == ("two coffees", told["id"], True)
    (closed,) = read(town, "alice", "--from", at, "--upto", at)["messages"]  # type: ignore[misc, attr-defined]
    assert (closed["open"], "text" in closed) == (False, False)
    shown = town.as_("alice", "stream", "-s", STREAM, "--from", at, "--upto", at).ok()
    assert "sealed to another reader" in shown.out


@pytest.mark.parametrize(
    ("args", "stdin", "text"),
    [
        (["words"], b"", "words"),
        (["-"], b"from stdin", "from stdin"),
        ([], b"piped", "piped"),
        (["--file", "FILE"], b"", "from a file\n"),
    ],
    ids=["argument", "dash", "pipe", "file"],
)
def test_a_body_comes_from_argument_file_or_stdin(
    town: Town, args: list[str], stdin: bytes, text: str, tmp_path: Path
) -> None:
    (tmp_path / "body.txt").write_text("from a file\n")
    given = [str(tmp_path / "body.txt") if arg == "FILE" else arg for arg in args]
    at = town.as_("alice", "send", *given, "-s", STREAM, "--json", stdin=stdin).json["stream_seq"]
    raw = town.as_("alice", "stream", "-s", STREAM, "--from", at, "--upto", at, "--out", "raw").ok()
    assert raw.out == text


def test_an_argument_that_is_not_utf_8_is_sent_as_bytes_and_refused_as_a_name(town: Town) -> None:
    typed = os.fsdecode(b"caf\xe9")  # as a terminal in Latin-1 writes it
    seq = town.as_("alice", "send", typed, "-s", STREAM, "--json").json["stream_seq"]
    shown = town.as_("alice", "stream", "-s", STREAM, "--from", seq, "--upto", seq, "--json").json["messages"]
    assert shown[0]["body"] == b"caf\xe9".hex()
    assert "not UTF-8" in town.as_("alice", "send", "x", "-s", STREAM, "--schema", typed).failed(Exit.USAGE)


def test_parent_schema_and_expiry_reach_the_reader(town: Town) -> None:
    first = town.as_("alice", "send", "a question", "-s", STREAM, "--json").json
    options = ("--parent", first["stream_seq"], "--schema", "example.answer.v1", "--expires", "+1h")
    second = town.as_("alice", "send", "an answer", "-s", STREAM, *options, "--json").json
    at = second["stream_seq"]
    (message,) = read(town, "alice", "--from", at, "--upto", at)["messages"]  # type: ignore[misc, attr-defined]
    assert message["parent"] == first["id"]
    assert message["expires_at"] > second["hub_ts"]
    same = town.as_("alice", "send", "again", "-s", STREAM, "--parent", first["id"]).ok()
    assert "durable" in same.out
    assert "--parent" in town.as_("alice", "send", "x", "-s", STREAM, "--parent", "zz").failed(1)


def test_a_sent_message_whose_answer_cannot_be_printed_is_reported_as_sent(town: Town) -> None:
    flags = ["--hub", town.url, "--trust", town.hub_id, "--client", str(town / "alice"), "-s", STREAM]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            ["veen", "send", "once", *flags],
            env={**environment(town / ".config"), "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == Exit.USAGE
    assert "the command has succeeded, but its answer cannot be written to stdout: No space" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "once" in town.as_("alice", "stream", "-s", STREAM, "--quiet").ok().out


def test_a_batch_sends_each_line_and_prints_the_rate(town: Town, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {n}\n" for n in range(200)))
    told = town.as_("alice", "send", "--batch", "--file", lines, "-s", STREAM, "--json").json
    assert told["sent"] == 200
    assert told["per_second"] > 0
    last = told["last"]["stream_seq"]
    out = town.as_("alice", "stream", "-s", STREAM, "--from", last - 199, "--out", "jsonl").ok().out
    assert [json.loads(line)["text"] for line in out.splitlines()] == [f"line {n}" for n in range(200)]
    assert "no lines" in town.as_("alice", "send", "--batch", "--file", "/dev/null", "-s", STREAM).failed(1)


def test_a_batch_sends_lines_as_they_arrive_and_ends_with_its_input(town: Town) -> None:
    flags = ["--hub", town.url, "--trust", town.hub_id, "--client", str(town / "alice"), "-s", STREAM]
    done = process(town.root, "send", "--batch", "--json", *flags, stdin=b"one\ntwo\n")
    assert done.json["sent"] == 2


def test_a_line_may_arrive_in_parts_and_is_refused_once_it_is_too_long() -> None:
    parts = [b"on", b"e\ntwo\n\nth", b"", b"lost"]
    assert list(split_lines(iter(parts).__next__)) == [b"one", b"two", b"", b"th"]
    endless = [bytes(65_536)] * 100
    with pytest.raises(CommandFailed, match="--attach"):
        list(split_lines(endless.pop))
    assert len(endless) > 80, "it was not waited for"


def test_an_unreadable_input_is_an_error_at_once(town: Town) -> None:
    unreadable = "/proc/self/mem"  # opens, and fails to read at its beginning
    done = town.as_("alice", "send", "--batch", "--file", unreadable, "-s", STREAM)
    assert "error" in done.failed(Exit.USAGE)


def test_proofs_are_fetched_and_verified_for_each_message(town: Town) -> None:
    town.as_("alice", "send", "prove me", "-s", STREAM).ok()
    told = read(town, "alice", "--upto", 3, "--proofs")
    assert all(message["proof"] and message["receipt"] for message in told["messages"])  # type: ignore[attr-defined]


def test_follow_shows_messages_as_they_arrive_until_it_is_interrupted(town: Town) -> None:
    at = town.as_("alice", "send", "the last before", "-s", STREAM, "--json").json["stream_seq"]
    flags = ["--hub", town.url, "--trust", town.hub_id, "--client", str(town / "alice"), "-s", STREAM]
    following = subprocess.Popen(
        ["veen", "stream", "--follow", "--from", str(at), "--json", *flags],
        env=environment(town / ".config"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["text"] == "the last before"
        town.as_("alice", "send", "news", "-s", STREAM).ok()
        assert json.loads(following.stdout.readline())["text"] == "news"
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=30)
    finally:
        following.kill()
        following.wait()
    assert (following.returncode, err.strip()) == (130, "")


def test_an_attachment_is_fetched_opened_and_compared(
    town: Town, sent: dict[str, object], tmp_path: Path
) -> None:
    at, copy = sent["stream_seq"], tmp_path / "copy.txt"
    told = town.as_("bob", "attachment", "get", at, "-s", STREAM, "--out", copy, "--json").json
    assert copy.read_text() == "the fine print\n"
    assert told["size"] == 15
    town.as_("bob", "attachment", "verify", copy, at, "-s", STREAM).ok()
    copy.write_text("another print\n")
    assert "is not attachment 0" in town.as_("bob", "attachment", "verify", copy, at, "-s", STREAM).failed(3)
    assert "attachment 0" in town.as_("bob", "attachment", "get", at, 1, "-s", STREAM, "--out", copy).failed(
        1
    )
    town.as_("alice", "attachment", "get", at, "-s", STREAM, "--out", copy).failed(Exit.PROTOCOL)


def test_resync_and_verify_state_print_how_far_the_log_is_verified(town: Town) -> None:
    at = town.as_("alice", "send", "newest", "-s", STREAM, "--json").json["stream_seq"]
    told = town.as_("bob", "resync", "-s", STREAM, "--json").json
    assert (told["stream_seq"], told["settled"]) == (at, [])
    checked = veen("verify-state", "--client", town / "bob", "--json").json
    (hub,) = checked["hubs"]
    assert hub["hub_id"] == town.hub_id
    assert told["label"] in [label["label"] for label in hub["labels"]]


def test_verify_state_reports_a_damaged_state(town: Town, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", town / "alice", copy], check=True)
    town.as_("alice", "send", "something to remember", "-s", STREAM).ok()
    (state,) = [path for path in (copy / "state").rglob("*.state") if len(path.stem) == 64][:1]
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    assert state.name in veen("verify-state", "--client", copy).failed(3)
    assert "keygen" in veen("id", "show", "--client", tmp_path / "nobody").failed(1)


def test_a_refusal_for_lack_of_a_token_says_what_to_do(town: Town) -> None:
    told = town.as_("bob", "send", "let me in", "-s", STREAM).failed(Exit.REFUSED)
    assert "CAP_MISSING" in told
    assert "veen cap authorize" in told
    other = town.as_("alice", "send", "elsewhere", "-s", "another-stream", "--cap", town / "alice.cap")
    assert "CAP_SCOPE" in other.failed(Exit.REFUSED)


def test_a_hub_that_is_not_pinned_is_refused(town: Town) -> None:
    bare = ("--hub", town.url, "--client", town / "alice", "-s", STREAM)
    assert "--trust" in veen("send", "x", *bare).failed(Exit.POLICY)
    other = "00" * 32
    assert "but 0000" in veen("send", "x", *bare, "--trust", other).failed(Exit.PROTOCOL)


def test_trust_first_pins_the_hub(town: Town, tmp_path: Path) -> None:
    me = tmp_path / "me"
    veen("keygen", "--out", me, "--no-passphrase").ok()
    where = ("--hub", town.url, "--client", me, "-s", STREAM)
    veen("stream", *where, "--upto", 1).failed(Exit.POLICY)
    veen("stream", *where, "--upto", 1, "--trust", "first").ok()
    veen("stream", *where, "--upto", 1).ok()


def test_a_hub_that_does_not_answer_is_a_network_failure(town: Town) -> None:
    flags = (
        "--hub",
        "http://127.0.0.1:9",
        "--trust",
        town.hub_id,
        "--client",
        town / "alice",
        "--wait",
        "0.1",
    )
    assert "check that the hub runs" in veen("send", "x", "-s", STREAM, *flags).failed(Exit.NETWORK)


def test_variables_and_contexts_supply_missing_flags(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--hub is missing" in veen("send", "x", "-s", STREAM).failed(Exit.USAGE)
    monkeypatch.setenv("VEEN_HUB", town.url)
    monkeypatch.setenv("VEEN_TRUST", town.hub_id)
    monkeypatch.setenv("VEEN_CLIENT", str(town / "alice"))
    veen("send", "by variables", "-s", STREAM).ok()
    for name in ("HUB", "TRUST", "CLIENT"):
        monkeypatch.delenv(f"VEEN_{name}")
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", town / "alice", "--stream", STREAM)
    veen("context", "add", "town", *flags).ok()
    veen("send", "by context").ok()
    assert "--stream is missing" in veen("context", "remove", "town").ok().out + veen("send", "x").err


def test_an_empty_stream_is_reported_and_wrong_ranges_are_refused(town: Town) -> None:
    unknown = town.as_("alice", "stream", "-s", "never-used")
    assert "never-used has no messages at this hub" in unknown.ok().out
    town.as_("alice", "send", "so that there is one", "-s", STREAM).ok()
    told = town.as_("alice", "stream", "-s", STREAM, "--from", 100_000, "--json").json
    assert told["count"] == 0
    assert told["newest"] > 0
    beyond = town.as_("alice", "stream", "-s", STREAM, "--from", 100_000)
    assert f"its newest message is number {told['newest']}" in beyond.ok().out
    town.as_("alice", "stream", "-s", STREAM, "--follow", "--upto", 3).failed(Exit.USAGE)
    reversed_ = town.as_("alice", "stream", "-s", STREAM, "--from", 3, "--upto", 2)
    assert "the range is empty" in reversed_.failed(Exit.USAGE)
    town.as_("alice", "stream", "-s", STREAM, "--json", "--out", "jsonl").failed(Exit.USAGE)
    assert os.environ.get("VEEN_HUB") is None


def test_control_characters_in_a_message_are_escaped() -> None:
    written = "evil\x1b[2J\x1b]0;title\x07\nFAKE   99  a line\r over \u202etxt"
    shown = escape_controls(written)
    assert not set(shown) & set("\x1b\x07\r\u202e")
    assert shown.splitlines()[1].startswith(" " * 8)
    assert escape_controls("two coffees, ☕ \t and tea") == "two coffees, ☕ \t and tea"


def test_an_interrupted_batch_says_exactly_which_lines_arrived(square: Town) -> None:
    """Ctrl-C while lines arrive faster than the hub answers: a user who resumes sends none twice."""
    flags = ("--hub", square.url, "--trust", square.hub_id, "--client", str(square / "alice"))
    running = subprocess.Popen(
        [SCRIPTS / "veen", "send", "--batch", "-s", "interrupted", "--json", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    feeder = threading.Thread(target=feed, args=(running.stdin.fileno(),))
    feeder.start()
    wait_for_messages(square, "interrupted")
    running.send_signal(signal.SIGINT)
    assert running.stdout is not None
    out = running.stdout.read()
    running.wait(60)
    feeder.join()
    for stream in (running.stdin, running.stdout, running.stderr):
        assert stream is not None
        stream.close()
    assert running.returncode == Exit.INTERRUPTED
    report = json.loads(out)
    there = square.as_("alice", "read", "-s", "interrupted", "--json").json
    assert there["count"] == report["sent"]
    assert report["unanswered"] == 0
    assert [each["text"] for each in there["messages"]] == [f"line {n}" for n in range(report["sent"])]


def feed(fd: int) -> None:
    """Write lines until the reader ends."""
    with contextlib.suppress(BrokenPipeError), open(fd, "wb", closefd=False) as lines:
        for n in itertools.count():
            lines.write(b"line %d\n" % n)


def wait_for_messages(town: Town, stream: str) -> None:
    while not town.as_("alice", "read", "-s", stream, "--last", 1, "--json").json["count"]:
        pass


def test_read_shows_the_whole_stream_and_tail_its_end(square: Town) -> None:
    lines = b"".join(b"%d\n" % n for n in range(1, 16))
    square.as_("alice", "send", "--batch", "-s", "counted", stdin=lines).ok()

    def texts(*words: object) -> list[str]:
        read = square.as_("alice", *words, "-s", "counted", "--json").json["messages"]
        return [each["text"] if "text" in each else bytes.fromhex(each["body"]).decode() for each in read]

    assert texts("read") == [str(n) for n in range(1, 16)]
    assert texts("tail") == [str(n) for n in range(6, 16)]
    assert texts("tail", "-n", 2) == texts("stream", "--last", 2) == ["14", "15"]
    assert texts("read", "--last", 99) == texts("read")
    assert texts("read", "--from", 3, "--upto", 4) == ["3", "4"]
    both = square.as_("alice", "read", "-s", "counted", "--last", 2, "--from", 3)
    assert "omit --from" in both.failed(Exit.USAGE)


def test_the_streams_that_an_identity_has_used_are_listed(square: Town) -> None:
    square.as_("alice", "send", "x", "-s", "listed").ok()
    hubs = veen("streams", "--client", square / "alice", "--json").json["hubs"]
    (row,) = [row for hub in hubs for row in hub["streams"] if row["stream"] == "listed"]
    assert row["stream_seq"] == 1
    assert "listed  verified up to message 1" in veen("streams", "--client", square / "alice").ok().out
    assert "has not read or written" in veen("streams", "--client", square / "realm").ok().out
    missing = square.as_("alice", "read", "-s", "lisetd").ok().out
    assert "has no messages at this hub; `veen streams`" in missing


def test_a_refused_message_names_its_stream_once(town: Town) -> None:
    refused = town.as_("bob", "send", "x", "-s", STREAM, "--json")
    error = json.loads(refused.err)["error"]
    assert (refused.code, error["code"]) == (Exit.REFUSED, "CAP_MISSING")
    assert error["message"].startswith(f"the hub refused, E.CAP / CAP_MISSING: stream {STREAM}: ")
    assert error["message"].count(STREAM) == 1


def test_a_token_for_another_identity_is_not_authorized(town: Town) -> None:
    refused = town.as_("bob", "cap", "authorize", town / "alice.cap").failed(Exit.POLICY)
    assert "not for this identity" in refused
    town.as_("alice", "cap", "authorize", town / "alice.cap").ok()


def test_the_tokens_that_an_identity_holds_are_listed(town: Town, tmp_path: Path) -> None:
    token = veen("cap", "list", "--client", town / "alice", "--json").json["tokens"][0]
    assert token["hub_id"] == town.hub_id
    assert token["expired"] is False
    assert token["auth_ref"] in veen("cap", "list", "--client", town / "alice").ok().out
    veen("keygen", "--out", tmp_path / "carol", "--no-passphrase").ok()
    assert "holds no tokens" in veen("cap", "list", "--client", tmp_path / "carol").ok().out


def test_hub_status_counts_entries_with_data_dir_only(square: Town) -> None:
    square.as_("alice", "send", "x", "-s", "status-count").ok()
    status = ("hub", "status", "--hub", square.url, "--trust", square.hub_id)
    assert "entries" not in veen(*status, "--json").json
    counted = veen(*status, "--data-dir", square / "hub", "--json").json
    assert counted["entries"] >= counted["labels"] >= 1
