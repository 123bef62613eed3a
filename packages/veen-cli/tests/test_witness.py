"""``veen witness``: init, serve, status and evidence, with a real process and real files."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.add_checkpoint import AddCheckpoint
from veen_core.tlog.note import ED25519, Note, NoteKey, parse_key, sign_note
from veen_core.tlog.tree import leaf_hash
from veen_core.tlog.tree_head import SignedHead, TreeHead

from .running import environment, process, veen

KEY = SigningKey(SigningSeed(b"\x07" * 32))
LOG = NoteKey("log.example.org/demo", ED25519, KEY.public)
NAME = "witness.example.org/w1"


def checkpoint(entry: bytes) -> SignedHead:
    """Return a checkpoint of a log with this one entry."""
    head = TreeHead(LOG.name, 1, leaf_hash(entry))
    return SignedHead(head, Note(head.text, (sign_note(KEY, LOG.name, head.text),)))


def send(url: str, old: int, entry: bytes) -> int:
    body = AddCheckpoint(old, (), checkpoint(entry)).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/add-checkpoint", body)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    veen("witness", "init", NAME, "--dir", tmp_path / "witness", "--log", LOG.text).ok()
    return tmp_path / "witness"


class Serving:
    """A witness started with ``veen witness serve``."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._process = subprocess.Popen(
            ["veen", "witness", "serve", "--dir", folder, "--listen", "127.0.0.1:0", *flags],
            env=environment(folder / ".config"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The address of a running witness that has cosigned one checkpoint."""
    serving = Serving(folder, "--json")
    found: str = json.loads(serving.line)["url"]
    assert send(found, 0, b"first") == 200
    yield found
    assert serving.end() == 0


def test_init_prints_the_verifier_key_and_keeps_the_secret_one(tmp_path: Path) -> None:
    made = veen("witness", "init", NAME, "--dir", tmp_path / "w", "--log", LOG.text, "--json").json
    key = parse_key(made["verifier_key"])
    assert (key.name, key.kind) == (NAME, 4)
    assert stat.S_IMODE((tmp_path / "w" / "witness.key").stat().st_mode) == 0o600
    assert LOG.text in Path(made["config"]).read_text()
    shown = veen("witness", "status", "--dir", tmp_path / "w").ok().out
    assert shown == f"witness {key.text}\n{LOG.name}\n  nothing cosigned yet\n"


def test_init_does_not_overwrite_a_witness(folder: Path) -> None:
    before = (folder / "witness.key").read_bytes()
    failed = veen("witness", "init", NAME, "--dir", folder).failed(1)
    assert "not overwritten" in failed
    assert (folder / "witness.key").read_bytes() == before


def test_init_refuses_a_name_with_a_scheme(tmp_path: Path) -> None:
    failed = veen("witness", "init", "https://witness.example.org/w1", "--dir", tmp_path / "w").failed(1)
    assert "has a scheme" in failed
    assert "use a URL without scheme" in failed
    assert not (tmp_path / "w").exists()


def test_serve_of_a_folder_in_use_says_which_program_to_stop(folder: Path, url: str, tmp_path: Path) -> None:
    del url
    failed = process(tmp_path, "witness", "serve", "--dir", folder, "--listen", "127.0.0.1:0").failed(1)
    assert "in use by process" in failed
    assert "stop the other witness, or use another --dir" in failed


def test_serve_without_tls_beyond_loopback_names_its_own_options(folder: Path) -> None:
    serving = Serving(folder, "--json", "--listen", "0.0.0.0:0")
    (warning,) = json.loads(serving.line)["warnings"]
    assert "plain HTTP and reachable from other machines: give --tls-cert and --tls-key" in warning
    assert serving.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_serve_says_where_it_listens_and_a_signal_ends_it_with_0(
    folder: Path, number: signal.Signals
) -> None:
    serving = Serving(folder)
    assert serving.line.startswith("witness listening on http://127.0.0.1:")
    assert serving.line.endswith("; stop it with Ctrl-C\n")
    assert serving.end(number) == 0


def test_serve_of_a_folder_that_is_no_witness_s_fails(tmp_path: Path) -> None:
    assert "veen witness init" in process(tmp_path, "witness", "serve", "--dir", tmp_path).failed(1)


def test_status_of_a_running_witness_by_folder_and_by_address(folder: Path, url: str) -> None:
    by_folder = veen("witness", "status", "--dir", folder, "--json").json
    assert veen("witness", "status", "--url", url, "--json").json == by_folder
    [log] = by_folder["logs"]
    assert (log["origin"], log["size"], log["contradictions"]) == (LOG.name, 1, [])
    shown = veen("witness", "status", "--url", url).ok().out.splitlines()
    assert shown[2].startswith("  size 1, cosigned ")


def test_the_folder_of_the_variable_is_read_unless_an_address_is_given(
    folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VEEN_WITNESS_DIR", str(folder))
    assert NAME in veen("witness", "status").ok().out
    veen("witness", "evidence", "--out", tmp_path / "evidence").ok()
    monkeypatch.setenv("VEEN_WITNESS_DIR", str(tmp_path / "nothing"))
    assert NAME in veen("witness", "status", "--url", url).ok().out
    both = veen("witness", "status", "--url", url, "--dir", folder).failed(1)
    assert "--dir, or its address with --url" in both


def test_a_contradiction_is_shown_exported_and_verified_offline(
    folder: Path, url: str, tmp_path: Path
) -> None:
    assert send(url, 1, b"second history") == 409
    shown = veen("witness", "status", "--url", url)
    assert shown.code == 3
    assert "EVIDENCE of misbehaviour: two-roots, 2 checkpoints of size 1 and 1" in shown.out
    for source in (("--url", url), ("--dir", folder)):
        target = tmp_path / source[0].removeprefix("--")
        [file] = veen("witness", "evidence", *source, "--out", target, "--json").json["written"]
        assert len(list(target.iterdir())) == 3
        again = veen("witness", "evidence", *source, "--out", target, "--json").json
        assert again["written"] == [], "files that exist are left alone"
        policy = tmp_path / "policy"
        policy.write_text(f"log {LOG.text}\nquorum none\n")
        assert "convict the log log.example.org/demo" in veen("verify", file, "--witnesses", policy).ok().out
        stranger = NoteKey(LOG.name, ED25519, SigningKey(SigningSeed(b"\x08" * 32)).public)
        policy.write_text(f"log {stranger.text}\nquorum none\n")
        assert veen("verify", file, "--witnesses", policy).code == 3


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ((), 1, "--dir, or its address with --url"),
        (("--url", "witness.example"), 1, "is not an address"),
        (("--url", "http://127.0.0.1:1"), 2, "does not answer"),
        (("--dir", "/nowhere"), 1, "veen witness init"),
    ],
    ids=["nothing", "no address", "nobody there", "no folder"],
)
def test_status_says_what_is_missing(given: tuple[str, ...], code: int, says: str) -> None:
    assert says in veen("witness", "status", *given).failed(code)


def test_an_address_that_is_no_witness_s_is_named(folder: Path, url: str) -> None:
    del folder
    failed = veen("witness", "status", "--url", f"{url}/elsewhere").failed(3)
    assert "check that it is a witness's address" in failed
