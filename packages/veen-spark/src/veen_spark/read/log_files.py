"""Discovery of logs: the segments under a path.

A path is an export (``manifest.cbor``, set form or chunk form), an export of a whole hub (``hub-export.cbor``
and ``labels/``), a hub's data directory or a clone of one (``VERSION`` and ``log/``), a folder of chunk
files, a single chunk file, or a folder or glob of any of these. The journal of a running hub holds entries
that its chunk files do not have yet: read a clone instead. A glob such as ``log/chunk-*`` may match summaries
too; they are ignored.
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
from veen_core.hub_export import HUB_EXPORT, HUB_LOG
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_spark.errors import DamagedLog, SparkSetupError
from veen_spark.read.segment import SparkSegment

IDENTITY: Final = "hub-identity.cbor"
VERSION: Final = "VERSION"
"""A file that only a data directory has."""
LOG: Final = "log"
"""The folder of a data directory that has the chunk files."""
_CHUNK_KINDS: Final = {"log": 0, "open": 1, "pruned": 2}
"""Chunk files that hold entries, by precedence: a hub killed between writing one form of a chunk and removing
the other leaves both."""
_SEQUENCES: Final = frozenset(sequence_name(stem) for stem in (PAYLOADS, RECEIPTS))
_EXPORTED: Final = frozenset({SIGNATURE, *_SEQUENCES})
"""Files that only an export has: a folder with one of them and no manifest is a damaged export."""
_MAX_DEPTH: Final = 4
"""Largest number of folder levels that are searched below a path."""
NamedChunk = tuple[str, ChunkName, int]
"""A chunk file's name, the parsed name, and the file's size."""


class FoundLogs(NamedTuple):
    """The logs under some paths."""

    segments: list[SparkSegment]
    """Ordered by hub, label and entry."""
    whole: set[str]
    """Folders that were searched completely, so that a file missing there is a fault."""
    damaged: dict[str, DamagedLog]
    """Folders that cannot be read completely, with the reason; ``segments`` may lack their entries."""
    hub_exports: set[str]
    """Exports of whole hubs: folders with ``hub-export.cbor`` or a hub log."""


def home_of(folder: Path) -> Path:
    """Return the folder that has the identity of the hub whose logs are in ``folder``."""
    return folder.parent if folder.name == LOG else folder


def matching(path: str) -> list[str]:
    """Expand a glob; return the path itself if it exists or is not a glob."""
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path))
    return [path]


def find_segments(paths: Iterable[str]) -> list[SparkSegment]:
    """Return the segments under the paths; raise for a path without logs and for a damaged folder."""
    found = find_logs(paths)
    for _, damage in sorted(found.damaged.items()):
        raise damage
    for folder in sorted(found.whole - {segment.origin for segment in found.segments}):
        if any(parse_chunk_name(name) is not None for name in os.listdir(folder)):
            raise DamagedLog(folder, 0, "the folder has chunk summaries but no chunk file")
    return found.segments


def find_logs(paths: Iterable[str]) -> FoundLogs:
    """Return the logs under the paths; a damaged folder is recorded and does not stop the search."""
    segments: dict[str, SparkSegment] = {}
    files: list[Path] = []
    dependent: list[Path] = []
    """Named files that are no log by themselves. If their folder is not read either, the search raises."""
    found = FoundLogs([], set(), {}, set())
    for path in map(os.path.abspath, paths):  # executors have other working folders
        if not (matches := matching(path)):
            raise SparkSetupError(f"nothing matches {path}", action="check the path and the working folder")
        named: list[Path] = []
        for found_path in map(Path, matches):
            if found_path.is_file() and (matches != [path] or parse_chunk_name(found_path.name) is not None):
                named.append(found_path)
            elif (under := _search(found_path, _MAX_DEPTH, found)) is None:
                raise _no_log(found_path)
            else:
                segments |= {segment.path: segment for segment in under}
        files += named
        dependent += [file for file in named if file.name in _SEQUENCES]
        if len(named) == len(matches) and all(_chunk(file.name) is None for file in named):
            dependent.append(named[0])
    segments |= {segment.path: segment for segment in _chunk_files(files, found)}
    known = found.whole | {segment.origin for segment in segments.values()}
    for found_path in dependent:
        if str(found_path.parent) not in known:
            raise _no_log(found_path)
    found.segments.extend(
        sorted(segments.values(), key=lambda s: (s.hub_id or b"", s.label, s.start_seq, s.path))
    )
    return found


def _chunk(name: str) -> ChunkName | None:
    """Parse the name of a file that holds entries; return None for any other file."""
    parsed = parse_chunk_name(name)
    return parsed if parsed is not None and parsed.kind in _CHUNK_KINDS else None


def _no_log(path: Path) -> SparkSetupError:
    return SparkSetupError(
        f"{path} is not an export, a data directory or a chunk file, and contains none",
        action="name the folder that `veen hub export` or `veen hub clone` wrote",
    )


def _search(path: Path, depth: int, logs: FoundLogs) -> list[SparkSegment] | None:
    """Return the segments under a path: an empty list for an empty log, None if there is no log.

    A folder that cannot be listed is recorded in ``logs`` and does not stop the search.
    """
    try:
        return _search_readable(path, depth, logs)
    except OSError as exc:
        logs.whole.add(str(path))
        logs.damaged[str(path)] = _unreadable(path, exc)
        return []


def _unreadable(path: Path, exc: OSError) -> DamagedLog:
    return DamagedLog(str(path), 0, f"cannot be read: {exc.strerror or exc}", action="check its permissions")


def _search_readable(path: Path, depth: int, logs: FoundLogs) -> list[SparkSegment] | None:
    if not path.exists():
        raise SparkSetupError(f"{path} does not exist", action="check the path and the working folder")
    if path.is_file():
        return None
    if (path / MANIFEST).is_file():
        return _complete(path, lambda: _exported(path, logs), logs)
    if (path / VERSION).is_file():
        return _complete(path / LOG, lambda: _chunks(path / LOG, path, logs), logs)
    folders, loose, entries = [], False, list(os.scandir(path))
    if any(entry.name in _EXPORTED for entry in entries):
        return _complete(path, lambda: _without_manifest(path), logs)
    for entry in entries:
        loose = loose or parse_chunk_name(entry.name) is not None
        if entry.is_dir() and not entry.name.startswith("."):
            folders.append(Path(entry.path))
    parts = [_complete(path, lambda: _chunks(path, path, logs), logs)] if loose else []
    if _is_hub_export({entry.name for entry in entries}):
        logs.hub_exports.add(str(path))
        parts.append([])  # a log, even if it has no label
    for folder in sorted(folders):
        if depth and (found := _search(folder, depth - 1, logs)) is not None:
            parts.append(found)
    return [segment for part in parts for segment in part] if parts else None


def _is_hub_export(names: set[str]) -> bool:
    """Return whether a folder with these names is an export of a whole hub, complete or not."""
    return HUB_EXPORT in names or (HUB_LOG in names and LOG not in names)


def _without_manifest(folder: Path) -> list[SparkSegment]:
    raise DamagedLog(str(folder / MANIFEST), 0, "the file is missing, so the export is incomplete")


def _complete(folder: Path, search: Callable[[], list[SparkSegment]], logs: FoundLogs) -> list[SparkSegment]:
    """Search a whole folder; if it cannot be read completely, record the reason in ``logs``."""
    logs.whole.add(str(folder))
    try:
        return search()
    except DamagedLog as exc:
        logs.damaged[str(folder)] = exc
    except OSError as exc:
        logs.damaged[str(folder)] = _unreadable(folder, exc)
    return []


def _chunk_files(files: Iterable[Path], logs: FoundLogs) -> list[SparkSegment]:
    """Return the segments of chunk files that the user named; ignore other files, such as summaries."""
    folders: dict[Path, list[NamedChunk]] = {}
    for path in dict.fromkeys(files):
        if (parsed := _chunk(path.name)) is not None:
            folders.setdefault(path.parent, []).append((path.name, parsed, _size(path)))
    segments: list[SparkSegment] = []
    for folder, named in folders.items():
        home = home_of(folder)
        segments += _newest_forms(folder, _hub(folder, home, logs), named)
    return segments


def _chunks(folder: Path, home: Path, logs: FoundLogs) -> list[SparkSegment]:
    """Return the segments of a folder of chunk files; ``home`` has the hub's identity."""
    return _newest_forms(folder, _hub(folder, home, logs), _names(folder))


def _newest_forms(folder: Path, hub: HubId | None, names: Iterable[NamedChunk]) -> list[SparkSegment]:
    best: dict[tuple[bytes, int], tuple[int, list[SparkSegment]]] = {}
    for name, parsed, size in names:
        rank, key = _CHUNK_KINDS[parsed.kind], (parsed.label, parsed.start)
        if key not in best or rank < best[key][0]:
            best[key] = (rank, [])
        if rank == best[key][0]:  # two files of one kind overlap, which verification reports
            best[key][1].append(_segment(folder, name, parsed, hub, size))
    return [segment for _, segments in best.values() for segment in segments]


def _names(folder: Path) -> Iterator[NamedChunk]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        raise DamagedLog(
            str(folder), 0, "the folder is missing, so the data directory is incomplete"
        ) from None
    for entry in entries:
        if (parsed := _chunk(entry.name)) is not None:
            yield entry.name, parsed, _size(entry)


def _size(file: Path | os.DirEntry[str]) -> int:
    """Return the size of a file, or 0 if it cannot be read: the task that reads it reports the error."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _segment(folder: Path, name: str, parsed: ChunkName, hub: HubId | None, size: int) -> SparkSegment:
    return SparkSegment(
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
    """Read the manifest of an export; raise ``DamagedLog``."""
    try:
        return Manifest.decode((folder / MANIFEST).read_bytes())
    except (VeenError, OSError) as exc:
        raise DamagedLog(str(folder / MANIFEST), 0, str(exc)) from exc


def _exported(folder: Path, logs: FoundLogs) -> list[SparkSegment]:
    """Return the segments of an export; raise ``DamagedLog``."""
    manifest = read_manifest(folder)
    if manifest.to_seq >= 2**63 or manifest.from_seq > manifest.to_seq:
        reason = f"entries {manifest.from_seq} to {manifest.to_seq} are not a valid range"
        raise DamagedLog(str(folder / MANIFEST), 0, reason)
    if manifest.form == "chunks":
        if not (chunks := _chunks(folder, folder, logs)):
            raise DamagedLog(str(folder), 0, f"there is no chunk file, although {MANIFEST} lists some")
        return chunks
    payloads, receipts = (folder / sequence_name(stem) for stem in (PAYLOADS, RECEIPTS))
    for path in (payloads, receipts):
        if not path.is_file():
            raise DamagedLog(str(path), 0, "the file is missing from the export")
    return [
        SparkSegment(
            form="set",
            origin=str(folder),
            path=str(payloads),
            hub_id=manifest.hub_id,
            label=manifest.label,
            start_seq=manifest.from_seq,
            end_seq=manifest.to_seq,
            receipts=str(receipts),
            file_digests=(_digest(folder, manifest, payloads), _digest(folder, manifest, receipts)),
            size=payloads.stat().st_size + receipts.stat().st_size,
        )
    ]


def _digest(folder: Path, manifest: Manifest, path: Path) -> bytes:
    """Return the SHA-256 that the manifest lists for a file."""
    for file in manifest.files:
        if file.name == path.name:
            return bytes(file.digest)
    raise DamagedLog(str(folder / MANIFEST), 0, f"the manifest does not list {path.name}")


def hub_id_of(home: Path) -> HubId | None:
    """Return the hub_id in the identity next to a log, unverified; None if there is no identity."""
    try:
        return HubIdentity.decode((home / IDENTITY).read_bytes()).hub_id
    except FileNotFoundError:
        return None
    except (VeenError, OSError) as exc:
        raise DamagedLog(str(home / IDENTITY), 0, str(exc)) from exc


def _hub(folder: Path, home: Path, logs: FoundLogs) -> HubId | None:
    """Return the hub_id, or None; an unreadable identity is recorded as damage of the folder."""
    try:
        return hub_id_of(home)
    except DamagedLog as exc:
        logs.damaged[str(folder)] = exc
        return None
