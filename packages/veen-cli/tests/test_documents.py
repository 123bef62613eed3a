"""What README, tutorial and reference say is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veen_cli.commands.reference import page

from . import documents
from .conftest import STREAM, Town

ROOT = Path(__file__).parents[3]


PAGES = ["README.md", "docs/tutorial.md", "docs/runbook.md"]


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


def test_the_client_example_writes_and_reads(
    town: Town, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    assert f'"{STREAM}"' in example
    monkeypatch.chdir(town.root)
    monkeypatch.setenv("VEEN_HUB", town.url)
    monkeypatch.setenv("VEEN_TRUST", town.hub_id)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.endswith(" two coffees\n")


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
