"""A bundle that is being written: a hidden folder next to its final names, so that a rename completes it.

The folder of a bundle gets its files in this order, and each file is durable before the next begins:

1. ``plan``         what will be exported, up to which hub checkpoint
2. ``part-0001`` …  the content of each part (``part-0001.tmp`` before it is complete), then ``row-0001``
3. ``sealed``       the header with the hashes of all parts, signed: from now on the bundle cannot change
4. the trailer at the end of every part
5. the parts get their final names in the folder above, the first part last; then the folder is removed

Between 4 and 5 the bundle is recorded in the audit log (AGB0 4.6). A killed export continues after the last
step that is complete. A final name never belongs to a bundle that is not recorded.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veen_bridge.bundles.naming import part_name
from veen_bridge.bundles.part_writer import append_ending
from veen_core.bundle import BundleHeader, PartRow, PartTrailer, bundle_id
from veen_core.errors import DecodeError, StateError
from veen_core.wire import Wire, int_map
from veen_hub.client import replace_file, sync_folder

PLAN: Final = "plan"
SEALED: Final = "sealed"


@int_map("export plan", section="RESOLUTIONS P6")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan(Wire):
    """The plan of one bundle; an interrupted export continues with the same plan."""

    ver: Literal[1] = 1
    draft: BundleHeader
    """The bundle's header without parts and counts."""
    part_size: int | None = None


@dataclass(frozen=True, slots=True)
class StagedBundle:
    """The folder of one bundle that is being written."""

    folder: Path

    @property
    def out(self) -> Path:
        """The folder in which the parts get their final names."""
        return self.folder.parent

    def begin(self, plan: ExportPlan) -> None:
        """Create the folder with its plan; anything that was there is removed."""
        self.discard()
        self.folder.mkdir(parents=True)
        sync_folder(self.out)
        replace_file(self.folder / PLAN, plan.encode())

    def plan(self) -> ExportPlan | None:
        """Return the plan; None if the folder does not exist, or was left before its plan was durable."""
        try:
            return ExportPlan.decode((self.folder / PLAN).read_bytes())
        except FileNotFoundError:
            return None
        except DecodeError as exc:
            raise StateError(
                f"{self.folder / PLAN} is damaged: {exc}", action=f"remove the folder {self.folder}"
            ) from None

    def part(self, number: int) -> Path:
        return self.folder / f"part-{number:04}"

    def note_row(self, number: int, row: PartRow) -> None:
        """Record that a part is complete."""
        replace_file(self.folder / f"row-{number:04}", row.encode())

    def row(self, number: int) -> PartRow | None:
        """Return the row of a complete part; None if the part is not complete."""
        try:
            return PartRow.decode((self.folder / f"row-{number:04}").read_bytes())
        except (FileNotFoundError, DecodeError):
            return None

    def remove_rows_from(self, number: int) -> None:
        """Forget parts that will be written again."""
        for path in self.folder.glob("row-*"):
            if int(path.name.removeprefix("row-").partition(".")[0]) >= number:
                path.unlink()

    def seal(self, trailer: PartTrailer) -> None:
        """Fix header and signature; the commit point of the bundle's content."""
        replace_file(self.folder / SEALED, trailer.encode())

    def sealed(self) -> PartTrailer | None:
        """Return header and signature, as the trailer of part 1; None if the bundle is not sealed."""
        try:
            return PartTrailer.decode((self.folder / SEALED).read_bytes())
        except FileNotFoundError:
            return None

    def append_trailers(self, sealed: PartTrailer) -> None:
        """Append the trailer to every part that has not got its final name."""
        for number, row in enumerate(sealed.header.parts, start=1):
            path = self.part(number)
            if path.exists():
                trailer = PartTrailer(number=number, header=sealed.header, signature=sealed.signature)
                append_ending(path, row.size, trailer)

    def publish(self, sealed: PartTrailer) -> list[Path]:
        """Give all parts their final names, durably, and remove the folder; safe to repeat."""
        name = bundle_id(sealed.header)
        targets = []
        for number in range(len(sealed.header.parts), 0, -1):
            target = self.out / part_name(sealed.header, name, number)
            if (path := self.part(number)).exists():
                os.rename(path, target)
            targets.append(target)
        sync_folder(self.out)
        self.discard()
        return targets[::-1]

    def discard(self) -> None:
        """Remove the folder and everything in it."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
            sync_folder(self.out)
