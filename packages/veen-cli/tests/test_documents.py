"""What README, tutorial and reference say is what happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from veen_cli.commands.reference import page
from veen_core.keystore import MIN_COST, KeystoreNonce, Salt, Secrets, seal_keystore

from . import documents
from .conftest import STREAM, Town

ROOT = Path(__file__).parents[3]


PAGES = ["README.md", "docs/tutorial.md", "docs/tutorials/overlays.md", "docs/runbook.md"]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_shown_runs_and_prints_what_is_shown(name: str, tmp_path: Path) -> None:
    ran = documents.run(ROOT / name, tmp_path)
    assert ran
    wrong = {step.command: documents.not_printed(step, printed) for step, printed in ran}
    assert {command: lines for command, lines in wrong.items() if lines} == {}


def test_a_line_that_was_not_printed_is_found() -> None:
    step = documents.Step("veen x", ["made 3 of abcdef0123456789", "…", "and another thing"])
    assert documents.not_printed(step, ["made 4 of 9876543210fedcba", "more"]) == ["and another thing"]
    assert documents.not_printed(step, ["and another thing", "made 1 of aaaaaaaaaaaaaaaa"]) == [
        "and another thing"
    ]


def test_every_block_of_commands_is_of_a_kind_that_is_run() -> None:
    for name in PAGES:
        kinds = set(re.findall(r"^```(\w*)\n", (ROOT / name).read_text(), re.MULTILINE))
        assert kinds <= {"", "console", "sh", "python", "py"}  # "" closes one


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed identity", "unsealed identity"])
def test_the_client_example_writes_and_reads(
    town: Town,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sealed: bool,
) -> None:
    (example,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    assert f'"{STREAM}"' in example
    shutil.copytree(town / "alice", tmp_path / "alice")
    if sealed:
        secrets = Secrets.decode((tmp_path / "alice/secrets.cbor").read_bytes())
        salt, nonce = Salt(bytes(Salt.SIZE)), KeystoreNonce(bytes(KeystoreNonce.SIZE))
        keystore = seal_keystore(secrets, b"secret", salt=salt, nonce=nonce, cost=MIN_COST)
        (tmp_path / "alice/keystore.enc").write_bytes(keystore.encode())
        (tmp_path / "alice/secrets.cbor").unlink()
        monkeypatch.setenv("VEEN_PASSPHRASE", "secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEEN_HUB", town.url)
    monkeypatch.setenv("VEEN_TRUST", town.hub_id)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.endswith(" two coffees\n")


def test_the_guide_of_the_python_client_prints_what_it_shows(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/python-client.md").read_text()
    steps = re.findall(r"```py\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert len(steps) == 3
    shutil.copytree(town / "alice", tmp_path / "alice")
    monkeypatch.chdir(tmp_path)
    for name, value in {"HUB": town.url, "TRUST": town.hub_id, "PASSPHRASE": "unused"}.items():
        monkeypatch.setenv(f"VEEN_{name}", value)
    names: dict[str, object] = {}
    for code, shown in steps:
        exec(compile(code, "docs/python-client.md", "exec"), names)
        printed = re.sub(r"\b\d+ two coffees|message \d+", "…", capsys.readouterr().out)
        assert printed == re.sub(r"\b\d+ two coffees|message \d+", "…", shown)


def sections(text: str) -> dict[str, str]:
    """The page by its second headings."""
    return {part.partition("\n")[0]: part for part in text.split("\n## ")}


def test_the_reference_is_up_to_date() -> None:
    shown, real = sections((ROOT / "docs/cli.md").read_text()), sections(page())
    absent = {f"`veen {name}`" for name in ELSEWHERE} - real.keys()  # of distributions not installed here
    kept = {name: part.rstrip() for name, part in shown.items() if name not in absent}
    made = {name: part.rstrip() for name, part in real.items()}
    assert kept == made, "run: python -m veen_cli.commands.reference > docs/cli.md"


ELSEWHERE = ("bridge", "selftest", "spark")
