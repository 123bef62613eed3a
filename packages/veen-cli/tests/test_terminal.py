"""At a terminal: prompts, progress bars, completion, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veen_cli.frame.output import PROGRESS_DELAY_SECONDS, Output

from .conftest import STREAM, Town
from .running import environment, process

MAX_SILENCE_SECONDS = 30
TWICE = {"Passphrase for me": b"secret words\n", "Repeat for confirmation": b"secret words\n"}


def at_a_terminal(cwd: Path, *command: str, answers: dict[str, bytes] | None = None) -> tuple[int, str]:
    """Run with a pseudo-terminal as stdin, stdout and stderr; answer each prompt when it appears."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(cwd / ".config"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, waiting = bytearray(), dict(answers or {})
    try:
        while part := _read(ours):
            seen += part
            for prompt in [each for each in waiting if each.encode() in seen]:
                os.write(ours, waiting.pop(prompt))
        return running.wait(MAX_SILENCE_SECONDS), seen.decode()
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def _read(fd: int) -> bytes:
    """Return the output that arrives within the timeout; empty at the end."""
    ready, _, _ = select.select([fd], [], [], MAX_SILENCE_SECONDS)
    assert ready, f"nothing for {MAX_SILENCE_SECONDS} s"
    try:
        return os.read(fd, 65_536)
    except OSError:  # EIO: the other side has closed
        return b""


def test_a_passphrase_is_prompted_twice_and_not_echoed(tmp_path: Path) -> None:
    code, seen = at_a_terminal(tmp_path, "veen", "keygen", "--out", "me", answers=TWICE)
    assert code == 0, seen
    assert seen.count("Passphrase for me") == 1
    assert "Repeat for confirmation" in seen
    assert (tmp_path / "me/keystore.enc").exists()
    code, seen = at_a_terminal(
        tmp_path,
        "veen",
        "id",
        "rotate",
        "--client",
        "me",
        "--quiet",
        answers={"Passphrase": b"secret words\n"},
    )
    assert code == 0, seen


WORKING = """
import time
from veen_cli.frame import output
with output.Output({how}).progress("counting", 10, counted=lambda: 2) as progress:
    output.PROGRESS_DELAY_SECONDS = 0
    print("so far", flush=True)
    {work}
"""
WAITS = "while progress._bar is None: time.sleep(0.01)"


@pytest.mark.parametrize("how", ["", "as_json=True"])
def test_a_progress_bar_appears_on_a_terminal_if_the_work_takes_long(how: str, tmp_path: Path) -> None:
    code, seen = at_a_terminal(tmp_path, sys.executable, "-c", WORKING.format(how=how, work=WAITS))
    assert code == 0, seen
    before, _, after = seen.partition("so far")
    assert "counting" not in before
    assert "counting" in after, "it shows by itself, whether or not the work tells anything"
    assert "2/10" in after


@pytest.mark.parametrize(
    ("how", "work"), [("", "pass"), ("quiet=True", f"time.sleep({PROGRESS_DELAY_SECONDS + 0.2})")]
)
def test_no_progress_bar_appears_for_short_work_or_with_quiet(how: str, work: str, tmp_path: Path) -> None:
    code, seen = at_a_terminal(tmp_path, sys.executable, "-c", WORKING.format(how=how, work=work))
    assert (code, seen.strip()) == (0, "so far")


def test_no_progress_bar_appears_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("veen_cli.frame.output.PROGRESS_DELAY_SECONDS", 0.0)
    for out in (Output(), Output(quiet=True), Output(as_json=True)):
        with out.progress("counting", 10) as progress:
            assert not progress.visible
            progress.advance()
    assert capsys.readouterr().err == ""


IMPATIENT = """
import sys
from veen_cli.frame import output
from veen_cli.frame.main import main
if __name__ == "__main__":  # fsck starts processes that read this too
    output.PROGRESS_DELAY_SECONDS = 0.0
    main(sys.argv[1:])
"""


def impatiently(cwd: Path, words: str) -> str:
    """Return the terminal output of a command whose progress bar appears at once."""
    (cwd / "impatient.py").write_text(IMPATIENT)
    code, seen = at_a_terminal(
        cwd, "bash", "-c", f"{sys.executable} impatient.py {words} > answer; echo ended $?"
    )
    assert code == 0
    assert "ended 0" in seen, seen
    return seen


def test_every_long_command_shows_a_progress_bar(square: Town, tmp_path: Path) -> None:
    us = f"--hub {square.url} --trust {square.hub_id} --client {square / 'alice'} -s bars"
    data = f"--data-dir {square / 'hub'}"
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "big").write_bytes(bytes(3_000_000))
    assert "sent" in impatiently(tmp_path, f"send --batch --file lines {us}")
    assert "sending" in impatiently(tmp_path, f"send x --attach big {us}")
    assert "reading messages" in impatiently(tmp_path, f"stream {us}")
    assert "reading messages" in impatiently(tmp_path, f"stream {us} --json")
    assert "fetching" in impatiently(tmp_path, f"attachment get 3 --out big2 {us}")
    assert (tmp_path / "big2").read_bytes() == bytes(3_000_000)
    assert "folding messages" in impatiently(tmp_path, f"fold kv.map bars {us.replace('-s bars', '')}")
    assert "settling" in impatiently(tmp_path, f"resync {us}")
    assert "copying labels" in impatiently(tmp_path, f"hub clone {data} --out copy")
    assert "exporting" in impatiently(tmp_path, f"hub export {data} --out export -s bars")
    assert "verifying" in impatiently(tmp_path, f"verify export --trust {square.hub_id}")
    assert "checking" in impatiently(tmp_path, "hub fsck --data-dir copy")
    assert "rebuilding" in impatiently(tmp_path, "hub repair --data-dir copy")


def test_no_progress_bar_appears_while_messages_are_printed(square: Town, tmp_path: Path) -> None:
    square.as_("alice", "send", "there is one", "-s", "seen").ok()
    (tmp_path / "impatient.py").write_text(IMPATIENT)
    us = ("--hub", square.url, "--trust", square.hub_id, "--client", str(square / "alice"), "-s", "seen")
    code, seen = at_a_terminal(tmp_path, sys.executable, "impatient.py", "stream", *us)
    assert code == 0
    assert "there is one" in seen
    assert "reading messages" not in seen


@pytest.mark.parametrize(("columns", "term"), [(80, "xterm"), (40, "dumb")])
def test_quickstart_fits_the_terminal(columns: int, term: str, tmp_path: Path) -> None:
    line = f"unset COLUMNS; stty cols {columns}; TERM={term} veen quickstart"
    code, seen = at_a_terminal(tmp_path, "bash", "-c", line)
    assert code == 0, seen
    assert ("\x1b[" in seen) == (term != "dumb"), "in colour, where there may be some"
    told = re.sub(r"\x1b\[[0-9;]*m", "", seen.partition("Continue by hand")[0])
    assert [each for each in told.splitlines() if len(each) > columns] == []
    assert "Bob reads" in told
    assert "✗" in told
    if columns == 80:
        assert re.search(r"hub_id +[0-9a-f]{64}\b", told), "whole: it is what one pins"


def completed(tmp_path: Path, shell: str, words: str) -> str:
    position = str(len(words.split(" ")) - 1)
    variables = {"_VEEN_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    if shell == "fish":
        variables["COMP_CWORD"] = words.rpartition(" ")[2]
    done = subprocess.run(
        ["veen"],
        env={**environment(tmp_path / ".config"), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_completed(shell: str, tmp_path: Path) -> None:
    assert "quickstart" in completed(tmp_path, shell, "veen qui")
    assert "checkpoint" in completed(tmp_path, shell, "veen hub che")
    assert "--follow" in completed(tmp_path, shell, "veen stream --fol")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("veen inspect rec", "file"),
        ("veen verify receipt.cbor hub", "file"),
        ("veen proof show pro", "file"),
        ("veen send hello --to bo", "file"),
        ("veen send --client al", "dir"),
        ("veen hub init --admin ad", "file"),
    ],
)
def test_file_names_are_completed_by_the_shell(words: str, kind: str, tmp_path: Path) -> None:
    assert completed(tmp_path, "bash", words) == f"{kind},{words.rpartition(' ')[2]}\n"


def test_contexts_and_codes_are_completed(tmp_path: Path) -> None:
    process(tmp_path, "context", "add", "work", "--hub", "http://127.0.0.1:9").ok()
    for words in ("veen context use w", "veen context remove w", "veen --context w"):
        assert completed(tmp_path, "bash", words) == "plain,work\n"
    assert completed(tmp_path, "bash", "veen explain e.s").split() == [
        "plain,E.SIZE",
        "plain,E.SIG",
        "plain,E.SEQ",
    ]


def test_an_unreadable_contexts_file_completes_nothing_and_prints_nothing(tmp_path: Path) -> None:
    process(tmp_path, "context", "add", "work", "--hub", "http://127.0.0.1:9").ok()
    (kept,) = tmp_path.rglob("contexts.json")
    kept.write_text("{")
    assert completed(tmp_path, "bash", "veen context use w").strip() == ""


def run_in_bash(tmp_path: Path, line: str, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env={**environment(tmp_path / ".config"), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_not_a_bug(closed: str, tmp_path: Path) -> None:
    assert run_in_bash(tmp_path, f"veen version {closed}")[0] == 0
    code, out, _err = run_in_bash(tmp_path, f"veen send -s s --hub http://127.0.0.1:9 {closed}")
    assert (code, out) == (1, "")


def test_characters_that_the_terminal_cannot_encode_are_replaced(tmp_path: Path) -> None:
    ascii_ = {"PYTHONIOENCODING": "ascii:strict"}
    code, out, err = run_in_bash(tmp_path, "veen quickstart", **ascii_)
    assert (code, err) == (0, "")
    assert "Continue by hand" in out
    run_in_bash(tmp_path, "veen context add 'café' --hub http://127.0.0.1:9")
    _code, out, _err = run_in_bash(tmp_path, "veen context list --json", **ascii_)
    assert list(json.loads(out)["contexts"]) == ["café"]


def test_a_closed_pipe_ends_the_quickstart_without_an_error(tmp_path: Path) -> None:
    code, _out, err = run_in_bash(tmp_path, "veen quickstart | head -n 1; exit ${PIPESTATUS[0]}")
    assert (code, err) == (141, "")


def test_bash_completes_with_the_completion_script(tmp_path: Path) -> None:
    lines = [
        'eval "$(veen completion bash)"',
        "COMP_WORDS=(veen hub che) COMP_CWORD=2",
        "_veen_completion veen",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    assert shell_prints(tmp_path, lines) == ["checkpoint"]


def test_fish_completes_with_the_completion_script(tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = process(tmp_path, "completion", "fish").ok().out
    (tmp_path / "veen.fish").write_text(script)
    line = "fish -c 'source veen.fish; complete -C \"veen hub che\"'"
    assert [shown.split("\t")[0] for shown in shell_prints(tmp_path, [line])] == ["checkpoint"]


ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
seen=
await() { until [[ $seen == *$1* ]]; do zpty -r -t shell more && seen+=$more || sleep 0.1; done }
zpty -w shell 'autoload -U compinit; compinit -u; source ./veen.zsh; print re""ady'
await ready
zpty -w -n shell $'veen hub che\\t'
await 'veen hub checkpoint'
print -r -- $seen
"""
"""The shell's output arrives in parts of any size, so all of it is kept and searched."""


def test_zsh_completes_with_the_completion_script(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "veen.zsh").write_text(process(tmp_path, "completion", "zsh").ok().out)
    (tmp_path / "type.zsh").write_text(ZSH)
    assert "veen hub checkpoint" in " ".join(shell_prints(tmp_path, ["zsh type.zsh"]))


def shell_prints(cwd: Path, lines: list[str]) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=cwd,
        env=environment(cwd),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_parses_the_completion_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = process(tmp_path, "completion", shell).ok().out
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=30)


@pytest.mark.parametrize("form", ["", "--json", "--quiet"], ids=["people", "json", "quiet"])
def test_ctrl_c_ends_a_waiting_batch_and_prints_how_many_lines_were_sent(form: str, town: Town) -> None:
    newest = f"the last line before Ctrl-C {form}"
    flags = [
        *filter(None, [form]),
        "--hub",
        town.url,
        "--trust",
        town.hub_id,
        "--client",
        str(town / "alice"),
        "-s",
        STREAM,
    ]
    sending = subprocess.Popen(
        ["veen", "send", "--batch", *flags],
        env=environment(town / ".config"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert sending.stdin is not None
        sending.stdin.write("one of many\n" * 300 + f"{newest}\n")
        sending.stdin.flush()
        deadline = time.monotonic() + 30
        while newest not in town.as_("alice", "stream", "-s", STREAM, "--quiet").ok().out:
            assert time.monotonic() < deadline
        sending.send_signal(signal.SIGINT)
        sending.wait(20)  # with its stdin still open
    finally:
        sending.kill()
        out, err = sending.communicate()
    assert sending.returncode == 130
    told = re.match(r"interrupted: lines 1 to ([0-9]+) are in ", err.strip())
    assert (told is not None) == (not form)
    assert bool(out.strip()) == (form == "--json")
    sent = int(told[1]) if told else json.loads(out)["sent"] if out.strip() else 1
    assert 1 <= sent <= 301
