"""Damaged bundle files: each part that is dropped, doubled, swapped or cut is named, and each flipped bit."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from veen_bridge.bundles import BundleFiles, check_bundle, open_bundles
from veen_bridge.exporting.export import ExportedBundle
from veen_core.bundle import BundleError, BundleTrust
from veen_core.errors import VeenError
from veen_core.ids import Coid

from .source_zone import SMALL_PARTS, SourceZone

FLIPS = 2_000


class Exported:
    """Bundles of one zone, exported once for all tests of this file."""

    def __init__(self, root: Path) -> None:
        self.zone = SourceZone(root)
        self.zone.send(3, attachments=[b"a picture", b"a plan"])
        self.small: ExportedBundle = self.zone.export(out=root / "small")[0]
        self.zone.send(30)
        self.parted: ExportedBundle = self.zone.export(out=root / "parted", part_size=SMALL_PARTS)[0]
        self.zone.send(30)
        self.later: ExportedBundle = self.zone.export(out=root / "later", part_size=SMALL_PARTS)[0]
        self.zone.stop()

    @property
    def trust(self) -> BundleTrust:
        return self.zone.trust


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("damage"))


@pytest.fixture
def parts(made: Exported, tmp_path: Path) -> list[Path]:
    """Copies of the part files, which a test may damage."""
    return [Path(shutil.copy(path, tmp_path)) for path in made.parted.files]


def faults(made: Exported, paths: list[Path]) -> list[VeenError]:
    opened = open_bundles(paths)
    found: list[VeenError] = list(opened.faults)
    for each in opened.bundles:
        found += check_bundle(each, made.trust).faults
    return found


def the_bundle(paths: list[Path]) -> BundleFiles:
    (found,) = open_bundles(paths).bundles
    return found


def test_a_bundle_of_several_parts_verifies_in_any_order_of_files(made: Exported, parts: list[Path]) -> None:
    assert len(parts) >= 3
    assert faults(made, parts) == faults(made, parts[::-1]) == []
    assert [each.stream_seq for each in the_bundle(parts).events(7)] == list(range(7, 35))


def test_no_part_is_larger_than_the_chosen_size(made: Exported) -> None:
    assert all(path.stat().st_size <= SMALL_PARTS for path in made.parted.files)


def test_the_attachments_of_a_bundle_are_found_by_their_coid(made: Exported) -> None:
    bundle = the_bundle([*made.small.files])
    sizes = dict(bundle.coids())
    assert len(sizes) == 2
    for coid, size in sizes.items():
        content = bundle.attachment(coid)
        assert content is not None
        assert len(content) == size
    assert bundle.attachment(Coid(bytes(32))) is None


@pytest.mark.parametrize("at", range(3))
def test_a_missing_part_is_named(made: Exported, parts: list[Path], at: int) -> None:
    (fault,) = faults(made, [*parts[:at], *parts[at + 1 :]])
    assert f"part {at + 1} of {len(parts)} is missing" in str(fault)


@pytest.mark.parametrize("at", range(3))
def test_a_doubled_part_is_named(made: Exported, parts: list[Path], at: int) -> None:
    again = parts[at].with_name("again.veenb")
    shutil.copy(parts[at], again)
    (fault,) = faults(made, [*parts, again])
    assert f"part {at + 1}: again.veenb and {parts[at].name} are the same part" in str(fault)


def test_swapped_parts_are_named(made: Exported, parts: list[Path]) -> None:
    first, second = parts[0].read_bytes(), parts[1].read_bytes()
    parts[0].write_bytes(second)
    parts[1].write_bytes(first)
    found = [str(fault) for fault in faults(made, parts)]
    assert [text for text in found if "parts were swapped" in text] == found
    assert any("part 1: " in text for text in found)
    assert any("part 2: " in text for text in found)


def test_a_part_of_another_bundle_is_not_taken_for_the_missing_one(made: Exported, parts: list[Path]) -> None:
    shutil.copy(made.later.files[1], parts[1])
    found = " / ".join(str(fault) for fault in faults(made, parts))
    assert f"part 2 of {len(parts)} is missing" in found
    assert "is missing" in found.replace(f"part 2 of {len(parts)} is missing", "", 1)  # of the other bundle


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("left", ["nothing", "one byte", "half", "all but one byte"])
def test_a_cut_part_is_named(made: Exported, parts: list[Path], at: int, left: str) -> None:
    whole = parts[at].read_bytes()
    sizes = {"nothing": 0, "one byte": 1, "half": len(whole) // 2, "all but one byte": len(whole) - 1}
    parts[at].write_bytes(whole[: sizes[left]])
    found = [str(fault) for fault in faults(made, parts)]
    assert any(f"part {at + 1}: {parts[at].name}" in text and "cut" in text for text in found)
    assert any(f"part {at + 1} of {len(parts)} is missing" in text for text in found)


def test_bytes_that_were_removed_inside_a_part_are_named(made: Exported, parts: list[Path]) -> None:
    whole = parts[1].read_bytes()
    parts[1].write_bytes(whole[:100] + whole[110:])
    (fault,) = faults(made, parts)
    assert "part 2: " in str(fault)
    assert "it was cut or altered" in str(fault)


def test_a_fault_in_one_part_does_not_hide_a_fault_in_another(made: Exported, parts: list[Path]) -> None:
    for at in (0, 2):
        whole = bytearray(parts[at].read_bytes())
        whole[200] ^= 1
        parts[at].write_bytes(whole)
    named = [str(fault) for fault in faults(made, parts)]
    assert len(named) == 2
    assert named[0].startswith("part 1")
    assert named[1].startswith("part 3")


def test_every_flipped_bit_is_refused_and_named(made: Exported, tmp_path: Path) -> None:
    path = tmp_path / "flipped.veenb"
    whole = made.small.files[0].read_bytes()
    content = made.small.header.parts[0].size
    step = max(1, len(whole) * 8 // FLIPS)
    accepted, unnamed, cited_twice = [], [], []
    positions = range(0, len(whole) * 8, step)
    for bit in positions:
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        path.write_bytes(altered)
        found = faults(made, [path])
        if not found:
            accepted.append(bit)
        elif not _is_named(found[0], in_content=bit // 8 < content):
            unnamed.append((bit, str(found[0])))
        cited_twice += [
            str(fault)
            for fault in found
            if isinstance(fault, BundleError) and str(fault).count(fault.clause) > 1
        ]
    assert len(positions) >= FLIPS
    assert accepted == []
    assert unnamed == []
    assert cited_twice == []


def _is_named(fault: VeenError, *, in_content: bool) -> bool:
    """Whether a fault in the content names its part, and one in the trailer the file or the clause."""
    if in_content:
        return isinstance(fault, BundleError) and fault.part == 1
    return "flipped.veenb" in str(fault) or re.search(r"\((RESOLUTIONS|core|AGB0)", str(fault)) is not None


def test_a_later_bundle_without_the_one_before_it_is_refused_as_its_continuation(made: Exported) -> None:
    later = the_bundle([*made.later.files])
    assert check_bundle(later, made.trust, previous=made.parted.header).faults == ()
    (fault,) = check_bundle(later, made.trust, previous=made.small.header).faults
    assert "a bundle is missing between them" in str(fault)


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.veenb")
    (fault,) = open_bundles([tmp_path]).faults
    assert "pipe.veenb is not a regular file" in str(fault)
