"""The commands of README, tutorials, guides and runbook run, and print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from veen_core.errors import SignatureError
from veen_core.keystore import MIN_COST, KeystoreNonce, Salt, Secrets, seal_keystore

from . import documents
from .conftest import STREAM, Town
from .running import SCRIPTS, ending_hubs, veen

ROOT = Path(__file__).parents[3]


PAGES = [
    "README.md",
    "docs/tutorials/first-messages.md",
    "docs/tutorials/overlays.md",
    "docs/runbook.md",
    "docs/guides/prove-a-message.md",
    "docs/guides/run-a-witness.md",
    "docs/guides/monitor-a-hub.md",
    "docs/guides/console.md",
    "docs/guides/shards.md",
    "docs/guides/recorder.md",
    "docs/guides/query.md",
    "docs/guides/rpc.md",
    "docs/guides/discovery.md",
    "docs/guides/grants-and-payments.md",
    "docs/guides/agreements-publications-recovery.md",
    "docs/guides/wallet.md",
    "docs/guides/realm-operation.md",
    *(
        f"docs/reference/cli/{name}.md"
        for name in ("index", "start", "identities", "hub", "witness", "tokens", "messages", "evidence")
    ),
]


SAVED = re.compile(r"^Save this as `([^`/]+)`:\n\n```python\n(.*?)```", re.DOTALL | re.MULTILINE)
"""A file that a page shows and that its commands need."""


@pytest.mark.parametrize("name", PAGES)
def test_every_documented_command_prints_the_documented_output(
    name: str, tmp_path: Path, veen_folder: Path
) -> None:
    for file, content in SAVED.findall((ROOT / name).read_text()):
        (tmp_path / file).write_text(content)
    ran = documents.run(ROOT / name, tmp_path, veen_folder)
    assert ran
    wrong = {step.command: documents.not_printed(step, printed) for step, printed in ran}
    assert {command: lines for command, lines in wrong.items() if lines} == {}


EXTEND_PACKAGE = """
import importlib.util, sys
spec = importlib.util.find_spec("veen_overlays")
spec.submodule_search_locations.append({!r})  # as if the module were saved in the package
sys.modules["veen_overlays"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
"""


def test_the_guide_add_an_overlay_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide, checkout = ROOT / "docs/guides/add-an-overlay.md", tmp_path / "checkout"
    saved = re.findall(r"Save this as\s`([^`]+)`:\n\n```python\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(saved) == 3
    for name, content in saved:
        (checkout / name).resolve().parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).resolve().write_text(content)
    package = checkout / "packages/veen-overlays/src/veen_overlays"
    (tmp_path / "sitecustomize.py").write_text(EXTEND_PACKAGE.format(str(package)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ending_hubs(tmp_path):
        ran = documents.run(guide, checkout, SCRIPTS)
    wrong = {step.command: documents.not_printed(step, printed) for step, printed in ran}
    assert {command: lines for command, lines in wrong.items() if lines} == {}


def test_a_documented_line_that_is_not_printed_is_reported() -> None:
    step = documents.Step("veen x", ["made 3 of abcdef0123456789", "…", "and another thing"])
    assert documents.not_printed(step, ["made 4 of 9876543210fedcba", "more"]) == ["and another thing"]
    assert documents.not_printed(step, ["and another thing", "made 1 of aaaaaaaaaaaaaaaa"]) == [
        "and another thing"
    ]


def test_every_code_block_is_in_a_known_language() -> None:
    for name in PAGES:
        kinds = set(re.findall(r"^```(\w*)\n", (ROOT / name).read_text(), re.MULTILINE))
        assert kinds <= {"", "console", "sh", "python", "py", "text", "json", "yaml"}  # "" closes one


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed identity", "unsealed identity"])
def test_the_python_example_in_the_readme_writes_and_reads(
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
    assert len(steps) == 4
    shutil.copytree(town / "alice", tmp_path / "alice")
    monkeypatch.chdir(tmp_path)
    key = veen("hub", "keys", "--note", "--data-dir", town / "hub", "--quiet").ok().out
    Path("policy.txt").write_text(f"log {key}quorum none\n")
    values = {"HUB": town.url, "TRUST": town.hub_id, "PASSPHRASE": "unused", "WITNESSES": "policy.txt"}
    for name, value in values.items():
        monkeypatch.setenv(f"VEEN_{name}", value)
    names: dict[str, object] = {}
    for code, shown in steps:
        exec(compile(code, "docs/python-client.md", "exec"), names)
        printed = re.sub(r"\b\d+ two coffees|message \d+", "…", capsys.readouterr().out)
        assert printed == re.sub(r"\b\d+ two coffees|message \d+", "…", shown)


def test_the_verification_example_in_the_readme_verifies_fetched_files(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    for text in ("one", "two", "three"):
        town.as_("alice", "send", text, "-s", STREAM).ok()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEEN_HUB", town.url)
    section = readme.split("## Verify a receipt and a proof")[1].split("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall(r"^veen (.*)$", section, re.MULTILINE)]
    assert [words[:2] for words in commands[:3]] == [["receipt", "get"], ["proof", "get"], ["receipt", "get"]]
    newest = "3"
    for words in commands:
        real = {"orders": STREAM, "HUB_ID": town.hub_id, "3": newest}
        trust = () if "--trust" in words else ("--trust", town.hub_id)
        shown = veen(*(real.get(word, word) for word in words), *trust).ok().out
        if found := re.search(r"veen receipt get (\d+)", shown):
            newest = found[1]
    assert commands[-1][0] == "verify"
    (key,) = veen("hub", "keys", "--data-dir", town / "hub", "--json").json["keys"]
    files = {name: Path(f"{name}.cbor").read_bytes() for name in ("receipt", "proof", "newest")}
    held = {f"{name}_bytes": content for name, content in files.items()}
    exec(compile(example, "README.md", "exec"), {**held, "pinned": key["hub_pk"]})
    with pytest.raises(SignatureError):
        exec(compile(example, "README.md", "exec"), {**held, "pinned": "ab" * 32})
