"""Files of a bridge's bundles: recognize a part, and verify the parts of each bundle together (P6).

``veen_core.bundle`` has the rules; ``veen bridge verify`` applies the same verifier, and also checks the
chain from one bundle to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_cli.evidence.verdicts import Verdict
from veen_cli.evidence.verification import NO_PIN
from veen_cli.frame.output import plural
from veen_core import stream
from veen_core.bundle import BundleError, BundleHeader, BundleTrust, BundleVerifier, PartTrailer, bundle_id
from veen_core.bundle.part import FOOTER_SIZE, MAGIC, trailer_start
from veen_core.errors import DecodeError, VeenError
from veen_core.ids import BundleId, HubId, HubPk
from veen_core.tlog.policy import WitnessPolicy

BLOCK_BYTES: Final = 1_048_576
"""Bytes of content that are read at once."""
KIND: Final = "part of a bundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePartFile:
    """A file that begins and ends like a part of a bundle; nothing is verified yet."""

    path: Path
    trailer: PartTrailer
    content_size: int
    """Bytes before the trailer."""


def is_part(path: Path) -> bool:
    """Return whether a file begins like a part of a bundle."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_part(path: Path) -> BundlePartFile:
    """Read the trailer of a part; raise ``DecodeError`` if the file does not end like a part."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - FOOTER_SIZE))
        start = trailer_start(size, file.read(FOOTER_SIZE))
        file.seek(start)
        trailer = PartTrailer.decode(file.read(size - FOOTER_SIZE - start))
        return BundlePartFile(path=path, trailer=trailer, content_size=start)


def verify_parts(paths: Iterable[Path], pin: HubId | None, policy: WitnessPolicy | None) -> list[Verdict]:
    """Verify the bundles to which these files belong; return a verdict for each file or bundle."""
    verdicts: list[Verdict] = []
    bundles: dict[BundleId, list[BundlePartFile]] = {}
    for path in paths:
        try:
            part = read_part(path)
        except (DecodeError, OSError) as exc:
            verdicts.append(Verdict(str(path), KIND, False, f"the file was cut or altered: {exc}"))
            continue
        bundles.setdefault(bundle_id(part.trailer.header), []).append(part)
    return verdicts + [_verify_bundle(parts, pin, policy) for parts in bundles.values()]


def _verify_bundle(parts: list[BundlePartFile], pin: HubId | None, policy: WitnessPolicy | None) -> Verdict:
    first = parts[0]
    what = KIND if len(first.trailer.header.parts) > 1 else "bundle"
    if pin is None:
        return Verdict(str(first.path), what, None, NO_PIN)
    part = first
    try:
        trust = BundleTrust(pinned=_hub_of(first.trailer.header, pin), policy=policy)
        verifier = BundleVerifier(first.trailer, trust)
        for part in sorted(parts, key=lambda each: each.trailer.number):
            _verify_part(verifier, part)
        verifier.finish()
    except VeenError as exc:
        return Verdict(str(part.path), what, False, str(exc))
    except OSError as exc:
        return Verdict(str(part.path), what, False, f"cannot be read: {exc.strerror}")
    return Verdict(str(first.path), what, True, _facts(first.trailer.header))


def _hub_of(header: BundleHeader, pin: HubId) -> HubId:
    """Return the pinned hub_id; if the pin is the first hub_pk, derive the hub_id from it (B13)."""
    follows = stream.hub_id(HubPk(pin))
    return follows if header.hub_id == follows else pin


def _verify_part(verifier: BundleVerifier, part: BundlePartFile) -> None:
    number, rows = part.trailer.number, part.trailer.header.parts
    if not 1 <= number <= len(rows):
        raise BundleError(f"the bundle has {len(rows)} parts", part=number)
    row = rows[number - 1]
    if part.content_size != row.size:
        raise BundleError(
            f"the file has {part.content_size} bytes of content, but the part table of the bundle says "
            f"{row.size}: the file was cut or altered",
            part=number,
        )
    with part.path.open("rb") as file:
        file.seek(row.size - row.index_size)
        checked = verifier.begin_part(part.trailer, file.read(row.index_size))
        file.seek(0)
        left = row.size - row.index_size
        while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            checked.feed(block)
    checked.finish()


def _facts(header: BundleHeader) -> str:
    span = f"entries {header.from_seq} to {header.to_seq}"
    what = f"heartbeat after entry {header.to_seq}" if header.is_heartbeat else span
    return (
        f"{what} of stream {header.stream}, {plural(header.counts.attachments, 'attachment')}, in "
        f"{plural(len(header.parts), 'part')}; root {header.root_after.hex()[:16]}…; signed by bridge "
        f"{header.bridge_id.hex()[:16]}…"
    )
