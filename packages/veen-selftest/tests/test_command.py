"""``veen selftest`` and ``veen-selftest``: output, reports and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest
from click.testing import CliRunner

from veen_cli.frame import CommandFailed
from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import MODERATE, KeystoreNonce, Salt, Secrets, seal_keystore
from veen_selftest.command import selftest
from veen_selftest.command.admin_key import read_key
from veen_selftest.hubs.fleet import OwnFleet
from veen_selftest.runner.check import ClauseViolation
from veen_selftest.runner.hub_setup import PLAIN

from .conftest import FAULTY_HUB, processes_with

ELSEWHERE = "http://127.0.0.1:8080"
SCRIPT = [sys.executable, "-m", "veen_selftest.command.start"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.fixture
def key_file(healthy: OwnFleet, tmp_path: Path) -> Path:
    admin = healthy.hub(PLAIN).admin
    assert admin is not None
    path = tmp_path / "admin.key"
    path.write_bytes(bytes(admin.seed))
    return path


def test_veen_finds_the_command_by_entry_point() -> None:
    (entry,) = entry_points(group="veen.commands", name="selftest")
    assert entry.load() is selftest.selftest
    (script,) = entry_points(group="console_scripts", name="veen-selftest")
    assert script.value == "veen_selftest.command.start:main", (
        "where an interrupt is quiet from the first moment"
    )


def test_every_option_is_explained_and_help_shows_examples() -> None:
    ctx = click.Context(
        selftest.selftest, info_name="selftest", parent=click.Context(click.Group(), info_name="veen")
    )
    text = selftest.selftest.get_help(ctx)
    assert "\n  veen selftest core\n" in text
    options = {name for each in selftest.selftest.get_params(ctx) for name in each.opts}
    assert {"--json", "--quiet", "--help", "--hub", "--seed", "--only", "--junit"} <= options
    assert [p.name for p in selftest.selftest.params if isinstance(p, click.Option) and not p.help] == []


@pytest.mark.parametrize("example", selftest.EXAMPLES)
def test_every_example_runs(
    example: str, healthy: OwnFleet, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is written, but for the hub's address, and for one check of those it names: all take minutes."""
    monkeypatch.chdir(key_file.parent)
    key_file.rename("admin")
    _veen, _selftest, *arguments = shlex.split(example.replace(ELSEWHERE, healthy.hub(PLAIN).url))
    one = {"perf": "hub.follow_p99_ms", "trust": "hub-log.note"}.get(arguments[0], "scenario.A")
    done = run(*arguments, f"--only={one}", *(["--own"] if "--hub" not in arguments else []))
    assert done.returncode == 0 or "perf" in arguments, done.stdout + done.stderr
    if "--json" in arguments:
        (figure,) = json.loads(done.stdout)["figures"]
        assert done.returncode == (0 if figure["ok"] else 5), (
            "whether it is reached is the machine's business"
        )
    if "--junit" in arguments:
        assert ET.parse("selftest.xml").getroot().tag == "testsuites"


def test_the_examples_name_a_hub_that_is_elsewhere() -> None:
    assert any(ELSEWHERE in example for example in selftest.EXAMPLES)


def test_a_run_against_a_hub_that_is_there_writes_every_report(
    healthy: OwnFleet, key_file: Path, tmp_path: Path
) -> None:
    junit, target = tmp_path / "junit.xml", tmp_path / "report.json"
    hub = healthy.hub(PLAIN)
    done = run(
        "core", "--only=api.*", "--only=identity.*", f"--hub={hub.url}", f"--probes={hub.probes_url}",
        f"--admin-key={key_file}", f"--junit={junit}", f"--report={target}", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert json.loads(target.read_text()) == found
    assert (found["ok"], found["failed"], found["skipped"]) == (True, 0, 2)
    assert found["passed"] == len(found["checks"]) - 2
    assert {"suite", "name", "clause", "says", "outcome", "why", "seconds"} == found["checks"][0].keys()
    root = ET.parse(junit).getroot()
    (suite,) = root
    for each in (root, suite):
        counts = [each.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert counts == [str(len(found["checks"])), "0", "0", "2"]
    assert (suite.get("name"), len(suite.get("timestamp") or "")) == ("core", 19)
    cases = suite.findall("testcase")
    assert len(cases) == len(found["checks"])
    assert sum(case.find("skipped") is not None for case in cases) == 2


def test_it_prints_lines_for_people_and_nothing_when_quiet(healthy: OwnFleet, key_file: Path) -> None:
    about = ("--only=scenario.A", "--only=identity.restart", f"--admin-key={key_file}")
    hub = healthy.hub(PLAIN).url
    done = run(*about, VEEN_HUB=hub)
    assert done.returncode == 0
    first, second, why, last = done.stdout.splitlines()
    assert first.startswith("ok    scenario.A")
    assert "spec-1 §20 A" in first
    assert second.startswith("skip  identity.restart")
    assert "run it without --hub" in why
    assert last.startswith("1 passed, 0 failed, 1 skipped in ")
    assert done.stderr == f"testing {hub}, from VEEN_HUB; --own starts hubs instead\n"
    quiet = run(*about, f"--hub={hub}", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_a_faulty_hub_ends_with_5_and_the_report_says_why(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text("skip SIG_INVALID")
    program = f"{sys.executable} {FAULTY_HUB} --fault-file={fault}"
    junit = tmp_path / "junit.xml"
    done = run("--only=admission.SIG_INVALID", f"--hub-command={program}", f"--junit={junit}")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "FAIL  admission.SIG_INVALID" in done.stdout
    assert "accepted what SIG_INVALID refuses" in done.stdout
    failure = ET.parse(junit).getroot().find(".//failure")
    assert failure is not None
    assert "accepted what SIG_INVALID refuses" in (failure.get("message") or "")


def test_a_run_in_which_all_checks_were_skipped_ends_with_5(healthy: OwnFleet) -> None:
    done = run("crash", f"--hub={healthy.hub(PLAIN).url}")
    assert done.returncode == 5
    assert done.stdout.splitlines()[-1].startswith("nothing was tested: 0 passed, 0 failed, 2 skipped")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--hub=http://127.0.0.1:1"], 2, "no hub answers at http://127.0.0.1:1"),
        (["--hub=ftp://x"], 1, "is not a URL"),
        (["--hub=http://127.0.0.1:99999"], 1, "is not a URL"),
        (["--hub=http://[::1"], 1, "is not a URL"),
        (["--hub=http://"], 1, "is not a URL"),
        (["--hub=https://127.0.0.1:1", f"--ca={__file__}"], 1, "cannot be used"),
        (["--hub-command=/nowhere/hub"], 1, "there is no such program"),
        (["--hub-command=it's"], 1, "No closing quotation"),
        (["nonsense"], 1, "see `veen-selftest --help`"),
        (["--only=nonsense"], 1, "--only nonsense: --list shows the checks"),
        (["--admin-key=/dev/null"], 1, "--admin-key"),
        (["--hub=http://x", "--hub-command=y"], 1, "give only one of them"),
        (["--hub=http://x", "--own"], 1, "give only one of them"),
        (["--count=many"], 1, "'many' is not an integer"),
        (["--hub=http://x", "--admin-key=/"], 1, "holds no identity"),
        (["--only=scenario.A", "--hub-command=false"], 5, ""),
    ],
    ids=[
        "no hub",
        "no url",
        "no port",
        "no address",
        "no host",
        "no certificate",
        "no program",
        "no command",
        "no suite",
        "no check",
        "a key and no hub",
        "two hubs",
        "its own and another",
        "no number",
        "a folder of no identity",
        "a hub that does not start",
    ],
)
def test_wrong_usage_prints_one_line_and_sets_the_exit_code(
    arguments: list[str], code: int, says: str
) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == (1 if says else 0)


def test_a_server_that_is_not_a_hub_is_reported(healthy: OwnFleet) -> None:
    done = run(f"--hub={healthy.hub(PLAIN).url}/healthz")
    assert done.returncode == 2
    assert "is not a hub (HTTP 404" in done.stderr
    tls = run(f"--hub={healthy.hub(PLAIN).url.replace('http', 'https')}")
    assert tls.returncode == 2
    assert "http:// or https://" in tls.stderr


def test_a_wrong_admin_key_is_refused_before_any_check(healthy: OwnFleet, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    done = run(f"--hub={healthy.hub(PLAIN).url}", f"--admin-key={tmp_path / 'key'}")
    assert (done.returncode, done.stdout) == (4, "")
    assert "E.FORBIDDEN" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_own_starts_a_hub_even_if_the_environment_names_one() -> None:
    done = run("--only=api.version", "--own", VEEN_HUB="http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr
    assert "against its own" in done.stdout


def test_variables_of_another_hub_do_not_affect_its_own(tmp_path: Path) -> None:
    """Else a key of a hub that is thrown away would stay among the operator's."""
    keys = tmp_path / "keys"
    done = run("--only=scenario.A", "--own", VEEN_KEYS_DIR=str(keys), VEEN_ROLE="nobody's")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not keys.exists()


def test_its_hub_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('not the library')")
    monkeypatch.chdir(tmp_path)
    fleet = OwnFleet(bytes(32))
    try:
        assert fleet.hub(PLAIN).url.startswith("http://127.0.0.1:")
    finally:
        fleet.close()


@pytest.mark.parametrize("form", ["raw", "hex", "secrets"])
def test_a_key_is_read_in_every_form_it_comes_in(form: str, tmp_path: Path) -> None:
    seed = SigningSeed(bytes(range(32)))
    secrets = Secrets(id_sign=seed, id_dh=DhSecret(bytes(32)), created_at=UnixTime(0))
    path = tmp_path / "key"
    content = {"raw": bytes(seed), "hex": bytes(seed).hex().encode() + b"\n", "secrets": secrets.encode()}[
        form
    ]
    path.write_bytes(content)
    assert read_key(path).public == secrets.signing_key.public


def test_the_key_of_a_sealed_identity_is_opened_with_its_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Secrets(
        id_sign=SigningSeed(bytes(range(32))), id_dh=DhSecret(bytes(32)), created_at=UnixTime(0)
    )
    salt, nonce = Salt(bytes(Salt.SIZE)), KeystoreNonce(bytes(KeystoreNonce.SIZE))
    sealed = seal_keystore(secrets, b"correct horse", salt=salt, nonce=nonce, cost=MODERATE)
    (tmp_path / "keystore.enc").write_bytes(sealed.encode())
    phrase = tmp_path / "phrase"
    phrase.write_text("correct horse\n")
    with pytest.raises(CommandFailed, match="can be read by other users"):
        read_key(tmp_path, phrase)
    phrase.chmod(0o600)
    assert read_key(tmp_path, phrase).public == secrets.signing_key.public
    monkeypatch.setenv("VEEN_PASSPHRASE", "correct horse")
    assert read_key(tmp_path / "keystore.enc").public == secrets.signing_key.public
    monkeypatch.setenv("VEEN_PASSPHRASE", "wrong")
    with pytest.raises(CommandFailed) as caught:
        read_key(tmp_path)
    assert "VEEN_PASSPHRASE" in (caught.value.action or "")


def test_the_reference_names_every_option_with_its_help() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/cli/selftest.md").read_text(encoding="utf-8")
    section = page.partition("## `veen selftest`")[2].partition("\n## ")[0]
    for each in selftest.selftest.params:
        if isinstance(each, click.Option) and each.name not in ("as_json", "quiet"):
            assert f"`{each.opts[0]}" in section
            assert (each.help or "")[:60] in section
    for example in selftest.EXAMPLES:
        assert example in section


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("not a key")
    done = CliRunner().invoke(selftest.selftest, ["--hub=http://127.0.0.1:1", f"--admin-key={path}"])
    assert "holds no key" in done.output


def test_checks_are_listed_without_a_hub() -> None:
    done = run("all", "--list", "--json")
    assert done.returncode == 0
    checks = json.loads(done.stdout)["checks"]
    assert {"suite": "core", "name": "scenario.A", "clause": "spec-1 §20 A"}.items() <= checks[0].items()
    assert len(run("props", "--list").stdout.splitlines()) == 9


@pytest.mark.parametrize("flag", ["--junit", "--report"])
def test_an_unwritable_report_file_is_refused_before_the_run(flag: str, tmp_path: Path) -> None:
    for target in (tmp_path / "nowhere" / "report", tmp_path):
        done = run("core", flag, str(target))
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert flag in done.stderr


def test_the_verdict_is_printed_even_if_the_report_cannot_be_written(healthy: OwnFleet) -> None:
    done = run("--only=api.version", f"--hub={healthy.hub(PLAIN).url}", "--junit=/dev/full")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("1 passed, 0 failed, 0 skipped in ")
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_under_stdout_is_one_line_and_a_code() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SCRIPT, "--list"],
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot be written to stdout: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_streams_are_no_error(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *SCRIPT, "--list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hub_that_never_listens_is_waited_for_once(tmp_path: Path) -> None:
    program = tmp_path / "hub"
    program.write_text("#!/bin/sh\ncase $1 in --init) ;; *) exec sleep 600 ;; esac\n")
    program.chmod(0o700)
    fleet = OwnFleet(b"silent", [str(program)], timeout=0.2)
    try:
        for _ in range(2):
            with pytest.raises(ClauseViolation, match=r"no output in 0\.2 s"):
                fleet.hub(PLAIN)
        assert len(list(fleet.folder.iterdir())) == 1
        assert processes_with(str(fleet.folder)) == []
    finally:
        fleet.close()


BROKEN = """
import sys
from veen_selftest.command import selftest, start
def fail(*_arguments):
    raise {error}
selftest.suites.chosen = fail
sys.argv = ["veen-selftest", "core"]
start.main()
"""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [("OSError(28, 'No space left')", 1, "No space left"), ("KeyError", 70, "a bug")],
)
def test_no_traceback_reaches_a_user(error: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN.format(error=error)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)
    assert said in done.stderr


INTERRUPTED_EARLY = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "veen_selftest.command.selftest":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from veen_selftest.command.start import main
main()
"""


def test_an_interrupt_during_the_imports_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_EARLY], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT], [signal.SIGINT] * 2, [signal.SIGTERM], [signal.SIGHUP]],
    ids=["Ctrl-C", "Ctrl-C twice", "SIGTERM", "a closed terminal"],
)
def test_interrupted_it_leaves_no_process_and_no_file(numbers: list[signal.Signals], tmp_path: Path) -> None:
    # Run in the background or by nohup, a test inherits that they are ignored: a terminal's user does not.
    listening = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    )
    script = f"{listening}; from veen_selftest.command.start import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "fuzz", "--count=1000000"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("veen-selftest-*/*/data/journal/*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hubs = processes_with(str(tmp_path))
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.01)  # a hand is no faster; the second one comes while it cleans up
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted: ")
    assert hubs
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
