"""``veen verify`` recognizes files of bundles and verifies them by the rules of ``veen bridge verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from veen_cli.evidence.verify import verify

from .source_zone import STREAM, SourceZone


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


def verdict(*arguments: str) -> tuple[int, dict[str, Any]]:
    ran = CliRunner().invoke(verify, [*arguments, "--json"])
    (found,) = json.loads(ran.stdout.splitlines()[0])["verdicts"]
    return ran.exit_code, found


def test_a_bundle_of_the_pinned_hub_verifies(source: SourceZone, media: Path) -> None:
    code, found = verdict(str(media), "--trust", source.hub_id.hex())
    assert (code, found["holds"], found["kind"]) == (0, True, "bundle")
    assert "entries 1 to 4" in found["why"]


def test_a_bundle_of_another_hub_fails(media: Path) -> None:
    code, found = verdict(str(media), "--trust", "11" * 32)
    assert (code, found["holds"]) == (3, False)


def test_without_a_pin_a_bundle_is_undecided(media: Path) -> None:
    code, found = verdict(str(media))
    assert (code, found["holds"]) == (3, None)


@pytest.mark.parametrize("at", [100, 500, -200, -5])
def test_a_flipped_bit_fails(source: SourceZone, media: Path, tmp_path: Path, at: int) -> None:
    content = bytearray(media.read_bytes())
    content[at] ^= 1
    damaged = tmp_path / media.name
    damaged.write_bytes(content)
    code, found = verdict(str(damaged), "--trust", source.hub_id.hex())
    assert (code, found["holds"]) == (3, False)


def test_a_cut_bundle_fails(source: SourceZone, media: Path, tmp_path: Path) -> None:
    damaged = tmp_path / media.name
    damaged.write_bytes(media.read_bytes()[:700])
    code, found = verdict(str(damaged), "--trust", source.hub_id.hex())
    assert (code, found["holds"]) == (3, False)
    assert "cut or altered" in found["why"]
