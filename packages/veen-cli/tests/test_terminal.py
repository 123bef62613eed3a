"""At a terminal: prompts, progress bars, completion, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veen_cli.output import PATIENCE, Output

from .conftest import STREAM, Town
from .running import environment, process

SILENCE = 30
TWICE = {"Passphrase for me": b"secret words\n", "Repeat for confirmation": b"secret words\n"}


def at_a_terminal(cwd: Path, *command: str, answers: dict[str, bytes] | None = None) -> tuple[int, str]:
    """Run with a pseudo-terminal as stdin, stdout and stderr; each prompt gets its answer once it shows."""
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
        return running.wait(SILENCE), seen.decode()
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def _read(fd: int) -> bytes:
    """What is there within a while; nothing at the end."""
    ready, _, _ = select.select([fd], [], [], SILENCE)
    assert ready, f"nothing for {SILENCE} s"
    try:
        return os.read(fd, 65_536)
    except OSError:  # EIO: the other side has closed
        return b""


def test_a_passphrase_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
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


WORKING = f"""
from veen_cli.output import Output
with Output().progress("counting", 10) as progress:
    progress.advance()
    print("so far")
    progress.started -= {PATIENCE}
    progress.advance()
"""


def test_a_bar_shows_when_it_lasts_and_somebody_watches(tmp_path: Path) -> None:
    code, seen = at_a_terminal(tmp_path, sys.executable, "-c", WORKING)
    assert code == 0, seen
    before, _, after = seen.partition("so far")
    assert "counting" not in before
    assert "counting" in after
    assert "2/10" in after


def test_no_bar_shows_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for out in (Output(), Output(quiet=True), Output(as_json=True)):
        with out.progress("counting", 10) as progress:
            progress.started -= PATIENCE
            progress.advance()
    assert capsys.readouterr().err == ""


def test_quickstart_fits_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    code, seen = at_a_terminal(tmp_path, "bash", "-c", "stty cols 80; veen quickstart")
    assert code == 0, seen
    assert "\x1b[" in seen, "in colour"
    assert "✗" in seen


def completed(tmp_path: Path, shell: str, words: str) -> str:
    position = str(len(words.split(" ")) - 1)
    variables = {"_VEEN_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    if shell == "fish":
        variables["COMP_CWORD"] = words.rpartition(" ")[2]
    done = subprocess.run(
        ["veen"],
        env={**environment(tmp_path), **variables},
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
def test_a_stream_that_is_closed_is_no_bug(closed: str, tmp_path: Path) -> None:
    assert run_in_bash(tmp_path, f"veen version {closed}")[0] == 0
    code, out, _err = run_in_bash(tmp_path, f"veen send -s s --hub http://127.0.0.1:9 {closed}")
    assert (code, out) == (1, "")


def test_a_terminal_that_cannot_write_every_character_gets_what_it_can(tmp_path: Path) -> None:
    ascii_ = {"PYTHONIOENCODING": "ascii:strict"}
    code, out, err = run_in_bash(tmp_path, "veen quickstart", **ascii_)
    assert (code, err) == (0, "")
    assert "Go on by hand" in out
    run_in_bash(tmp_path, "veen context add 'café' --hub http://127.0.0.1:9")
    _code, out, _err = run_in_bash(tmp_path, "veen context list --json", **ascii_)
    assert list(json.loads(out)["contexts"]) == ["café"]


def test_whoever_stops_reading_the_quickstart_is_told_nothing(tmp_path: Path) -> None:
    code, _out, err = run_in_bash(tmp_path, "veen quickstart | head -n 1; exit ${PIPESTATUS[0]}")
    assert (code, err) == (141, "")


def test_bash_completes_with_the_script_that_it_was_given(tmp_path: Path) -> None:
    lines = [
        'eval "$(veen completion bash)"',
        "COMP_WORDS=(veen hub che) COMP_CWORD=2",
        "_veen_completion veen",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    assert shell_prints(tmp_path, lines) == ["checkpoint"]


def test_fish_completes_with_the_script_that_it_was_given(tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = process(tmp_path, "completion", "fish").ok().out
    (tmp_path / "veen.fish").write_text(script)
    line = "fish -c 'source veen.fish; complete -C \"veen hub che\"'"
    assert [shown.split("\t")[0] for shown in shell_prints(tmp_path, [line])] == ["checkpoint"]


ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit; compinit -u; source ./veen.zsh; print re""ady'
until zpty -r -t shell line && [[ $line == *ready* ]]; do sleep 0.1; done
zpty -w -n shell $'veen hub che\\t'
until zpty -r -t shell line && [[ $line == *che* ]]; do sleep 0.1; done
sleep 3
while zpty -r -t shell more; do line+=$more; done
print -r -- $line
"""


def test_zsh_completes_with_the_script_that_it_was_given(tmp_path: Path) -> None:
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
def test_the_completion_script_is_one_that_the_shell_reads(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = process(tmp_path, "completion", shell).ok().out
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=30)


def test_ctrl_c_ends_a_batch_that_waits_for_its_next_line(town: Town) -> None:
    flags = ["--hub", town.url, "--trust", town.hub_id, "--client", str(town / "alice"), "-s", STREAM]
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
        sending.stdin.write("the line before Ctrl-C\n")
        sending.stdin.flush()
        deadline = time.monotonic() + 30
        while "the line before Ctrl-C" not in town.as_("alice", "stream", "-s", STREAM, "--quiet").ok().out:
            assert time.monotonic() < deadline
        sending.send_signal(signal.SIGINT)
        sending.wait(20)  # with its stdin still open
    finally:
        sending.kill()
        _, err = sending.communicate()
    assert (sending.returncode, err.strip()) == (130, "")
