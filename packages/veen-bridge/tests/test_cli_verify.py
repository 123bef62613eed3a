"""``veen verify`` recognizes files of bundles and verifies them by the rules of ``veen bridge verify``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame.main import run

from .source_zone import SMALL_PARTS, STREAM, SourceZone


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceZone]:
    zone = SourceZone(tmp_path_factory.mktemp("z1"))
    yield zone
    zone.stop()


@pytest.fixture(scope="module")
def media(source: SourceZone) -> Path:
    source.send(4, attachments=[b"attachment" * 100])
    source.export(STREAM)
    (path,) = source.out.glob("*.veenb")
    return path


Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verdict(capsys: pytest.CaptureFixture[str]) -> Verify:
    """Run ``veen verify``; return its exit code and its one verdict."""

    def ask(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = run(["verify", *arguments, "--json"])
        (found,) = json.loads(capsys.readouterr().out.splitlines()[0])["verdicts"]
        return code, found

    return ask


def test_a_bundle_of_the_pinned_hub_verifies(verdict: Verify, source: SourceZone, media: Path) -> None:
    code, found = verdict(str(media), "--trust", source.hub_id.hex())
    assert (code, found["holds"], found["kind"]) == (0, True, "bundle")
    assert "entries 1 to 5" in found["why"]


def test_a_bundle_of_another_hub_fails(verdict: Verify, media: Path) -> None:
    code, found = verdict(str(media), "--trust", "11" * 32)
    assert (code, found["holds"]) == (3, False)


def test_without_a_pin_a_bundle_is_undecided(verdict: Verify, media: Path) -> None:
    code, found = verdict(str(media))
    assert (code, found["holds"]) == (3, None)


@pytest.mark.parametrize("at", [100, 500, -200, -5])
def test_a_flipped_bit_fails(
    verdict: Verify, source: SourceZone, media: Path, tmp_path: Path, at: int
) -> None:
    content = bytearray(media.read_bytes())
    content[at] ^= 1
    damaged = tmp_path / media.name
    damaged.write_bytes(content)
    code, found = verdict(str(damaged), "--trust", source.hub_id.hex())
    assert (code, found["holds"]) == (3, False)


def test_a_cut_bundle_fails(verdict: Verify, source: SourceZone, media: Path, tmp_path: Path) -> None:
    damaged = tmp_path / media.name
    damaged.write_bytes(media.read_bytes()[:700])
    code, found = verdict(str(damaged), "--trust", source.hub_id.hex())
    assert (code, found["holds"]) == (3, False)
    assert "cut or altered" in found["why"]


def test_a_missing_part_is_named(verdict: Verify, source: SourceZone, media: Path, tmp_path: Path) -> None:
    del media  # it was exported before
    source.send(30)
    (made,) = source.export(STREAM, out=tmp_path, part_size=SMALL_PARTS)
    trust = ("--trust", source.hub_id.hex())
    code, found = verdict(*map(str, made.files), *trust)
    assert (code, found["holds"]) == (0, True)
    made.files[1].unlink()
    code, found = verdict(*map(str, (made.files[0], *made.files[2:])), *trust)
    assert (code, found["holds"]) == (3, False)
    assert "are missing: 2" in found["why"]
