"""Finding logs: what lies under a path, as segments.

A path is an export (``manifest.cbor``, as a set or as chunks), a hub's data directory or a clone of one
(``VERSION`` and ``log/``), a folder of chunk files, a single chunk file, or a folder or glob of any of these.
A directory that a hub has open holds more than its chunk files say: read a clone of it. Files that a glob
matches are taken as a folder's are: ``log/chunk-*`` is the chunks, and not their summaries.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from veen_core.chunk import ChunkName, parse_chunk_name
from veen_core.errors import VeenError
from veen_core.export import MANIFEST, PAYLOADS, RECEIPTS, SIGNATURE, Manifest, sequence_name
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_spark.errors import DamagedLog, SparkSetupError
from veen_spark.read.segment import Segment

IDENTITY: Final = "hub-identity.cbor"
VERSION: Final = "VERSION"
"""Only a data directory has one."""
_KINDS: Final = {"log": 0, "open": 1, "pruned": 2}
"""Of a chunk in two forms the first counts: a hub was stopped between writing one and removing the other."""
_SEQUENCES: Final = frozenset(sequence_name(stem) for stem in (PAYLOADS, RECEIPTS))
_EXPORTED: Final = frozenset({SIGNATURE, *_SEQUENCES})
"""What lies in an export only: a folder with one of them and without a manifest is what is left of one."""
_DEPTH: Final = 4
Named = tuple[str, ChunkName, int]
"""A chunk file's name, what it says, and the file's size."""


class Found(NamedTuple):
    """What lies under some paths."""

    segments: list[Segment]
    """In the order of labels and entries."""
    whole: set[str]
    """The folders that were looked through whole: what is missing there is missing."""
    damaged: dict[str, DamagedLog]
    """Of a folder whose manifest or identity cannot be read, why; its entries may not be among the others."""


def matching(path: str) -> list[str]:
    """What a path stands for: itself if it is there, or cannot be a glob; else what it matches."""
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path))
    return [path]


def find_segments(paths: Iterable[str]) -> list[Segment]:
    """Every stretch of log under the paths; a path that has none raises, and so does a damaged folder."""
    found = find_logs(paths)
    for _, damage in sorted(found.damaged.items()):
        raise damage
    for folder in sorted(found.whole - {segment.origin for segment in found.segments}):
        if any(parse_chunk_name(name) is not None for name in os.listdir(folder)):
            raise DamagedLog(folder, 0, "no chunk file is left of what the summaries in it sum up")
    return found.segments


def find_logs(paths: Iterable[str]) -> Found:
    """Likewise, but a damaged folder is told and does not hide the others."""
    segments: dict[str, Segment] = {}
    files: list[Path] = []
    alone: list[Path] = []
    """Of no use unless more of their folder is read: else a log that was meant would be passed over."""
    here = Found([], set(), {})
    for path in map(os.path.abspath, paths):  # an executor has another working folder
        if not (places := matching(path)):
            raise SparkSetupError(f"nothing matches {path}")
        named: list[Path] = []
        for place in map(Path, places):
            if place.is_file() and (places != [path] or parse_chunk_name(place.name) is not None):
                named.append(place)
            elif (under := _under(place, _DEPTH, here)) is None:
                raise _no_log(place)
            else:
                segments |= {segment.path: segment for segment in under}
        files += named
        alone += [file for file in named if file.name in _SEQUENCES]
        if len(named) == len(places) and all(_chunk(file.name) is None for file in named):
            alone.append(named[0])
    segments |= {segment.path: segment for segment in _chunk_files(files, here)}
    known = here.whole | {segment.origin for segment in segments.values()}
    for place in alone:
        if str(place.parent) not in known:
            raise _no_log(place)
    here.segments.extend(
        sorted(segments.values(), key=lambda s: (s.hub_id or b"", s.label, s.start_seq, s.path))
    )
    return here


def _chunk(name: str) -> ChunkName | None:
    """Of a file that holds entries; a summary does not."""
    parsed = parse_chunk_name(name)
    return parsed if parsed is not None and parsed.kind in _KINDS else None


def _no_log(place: Path) -> SparkSetupError:
    return SparkSetupError(f"{place} is no export, no data directory and no chunk file, and holds none")


def _under(path: Path, depth: int, here: Found) -> list[Segment] | None:
    """None where there is nothing of a log: an empty log is an empty list."""
    if not path.exists():
        raise SparkSetupError(f"{path} does not exist")
    if path.is_file():
        return None
    if (path / MANIFEST).is_file():
        return _whole(path, lambda: _exported(path, here), here)
    if (path / VERSION).is_file():
        return _whole(path / "log", lambda: _chunks(path / "log", path, here), here)
    folders, loose, entries = [], False, list(os.scandir(path))
    if any(entry.name in _EXPORTED for entry in entries):
        return _whole(path, lambda: _torn(path), here)
    for entry in entries:
        loose = loose or parse_chunk_name(entry.name) is not None
        if entry.is_dir() and not entry.name.startswith("."):
            folders.append(Path(entry.path))
    parts = [_whole(path, lambda: _chunks(path, path, here), here)] if loose else []
    for folder in sorted(folders):
        if depth and (found := _under(folder, depth - 1, here)) is not None:
            parts.append(found)
    return [segment for part in parts for segment in part] if parts else None


def _torn(folder: Path) -> list[Segment]:
    raise DamagedLog(str(folder / MANIFEST), 0, "is missing: this is no whole export")


def _whole(folder: Path, look: Callable[[], list[Segment]], here: Found) -> list[Segment]:
    here.whole.add(str(folder))
    try:
        return look()
    except DamagedLog as exc:
        here.damaged[str(folder)] = exc
        return []


def _chunk_files(files: Iterable[Path], here: Found) -> list[Segment]:
    """The chunk files among those that were named; a shell's glob names the summaries beside them, too."""
    folders: dict[Path, list[Named]] = {}
    for path in dict.fromkeys(files):
        if (parsed := _chunk(path.name)) is not None:
            folders.setdefault(path.parent, []).append((path.name, parsed, path.stat().st_size))
    segments: list[Segment] = []
    for folder, named in folders.items():
        home = folder.parent if folder.name == "log" else folder
        segments += _best(folder, _hub(folder, home, here), named)
    return segments


def _chunks(folder: Path, home: Path, here: Found) -> list[Segment]:
    """The chunk files of a folder; the identity lies in ``home``."""
    return _best(folder, _hub(folder, home, here), _names(folder))


def _best(folder: Path, hub: HubId | None, names: Iterable[Named]) -> list[Segment]:
    best: dict[tuple[bytes, int], tuple[int, list[Segment]]] = {}
    for name, parsed, size in names:
        rank, key = _KINDS[parsed.kind], (parsed.label, parsed.start)
        if key not in best or rank < best[key][0]:
            best[key] = (rank, [])
        if rank == best[key][0]:  # two of one kind are no leftover: both are read, and found to overlap
            best[key][1].append(_segment(folder, name, parsed, hub, size))
    return [segment for _, segments in best.values() for segment in segments]


def _names(folder: Path) -> Iterator[Named]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        raise DamagedLog(str(folder), 0, "is missing: this is no whole data directory") from None
    for entry in entries:
        if (parsed := _chunk(entry.name)) is not None:
            yield entry.name, parsed, _size(entry)


def _size(file: os.DirEntry[str]) -> int:
    """Of a file that cannot be looked at, none: it is somebody's chunk, and whoever reads it will say why."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _segment(folder: Path, name: str, parsed: ChunkName, hub: HubId | None, size: int) -> Segment:
    return Segment(
        form="pruned" if parsed.kind == "pruned" else "chunk",
        origin=str(folder),
        path=str(folder / name),
        hub_id=hub,
        label=parsed.label,
        start_seq=parsed.start,
        end_seq=parsed.end,
        size=size,
    )


def read_manifest(folder: Path) -> Manifest:
    try:
        return Manifest.decode((folder / MANIFEST).read_bytes())
    except (VeenError, OSError) as exc:
        raise DamagedLog(str(folder / MANIFEST), 0, str(exc)) from exc


def _exported(folder: Path, here: Found) -> list[Segment]:
    manifest = read_manifest(folder)
    if manifest.to_seq >= 2**63 or manifest.from_seq > manifest.to_seq:
        raise DamagedLog(str(folder / MANIFEST), 0, "promises a range of entries that there cannot be")
    if manifest.form == "chunks":
        if not (chunks := _chunks(folder, folder, here)):
            raise DamagedLog(str(folder), 0, f"no chunk file is left of what {MANIFEST} promises")
        return chunks
    payloads, receipts = (folder / sequence_name(stem) for stem in (PAYLOADS, RECEIPTS))
    for path in (payloads, receipts):
        if not path.is_file():
            raise DamagedLog(str(path), 0, "is missing from the export")
    return [
        Segment(
            form="set",
            origin=str(folder),
            path=str(payloads),
            hub_id=manifest.hub_id,
            label=manifest.label,
            start_seq=manifest.from_seq,
            end_seq=manifest.to_seq,
            receipts=str(receipts),
            size=payloads.stat().st_size + receipts.stat().st_size,
        )
    ]


def hub_id_of(home: Path) -> HubId | None:
    """As the identity beside the log claims; verifying is another matter (``verify``)."""
    try:
        return HubIdentity.decode((home / IDENTITY).read_bytes()).hub_id
    except FileNotFoundError:
        return None
    except (VeenError, OSError) as exc:
        raise DamagedLog(str(home / IDENTITY), 0, str(exc)) from exc


def _hub(folder: Path, home: Path, here: Found) -> HubId | None:
    """Likewise; an identity that cannot be read is damage of the folder, whose chunks still have names."""
    try:
        return hub_id_of(home)
    except DamagedLog as exc:
        here.damaged[str(folder)] = exc
        return None
