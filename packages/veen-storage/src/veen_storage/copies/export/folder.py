"""The folder that an export is written into: files are buffered, hashed, and synced when they end."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from veen_core.export import ExportedFile, FileHash
from veen_storage.disk.files import Files

BUFFER_BYTES: Final = 1_048_576


class ExportFile:
    """A file that is being written."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.size = 0
        self._files = files
        self._fd = files.open_append(path)
        self._digest = sha256()
        self._parts: list[bytes] = []
        self._held = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        self.size += len(data)
        if self._held >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._parts)
        self._files.write(self._fd, data, self.size - self._held)
        self._digest.update(data)
        self._parts, self._held = [], 0

    def end(self, name: str) -> ExportedFile:
        """Sync and close the file, and give it its final name."""
        self._flush()
        self._files.sync(self._fd)
        self.close()
        if self.path.name != name:
            self._files.rename(self.path, self.path.with_name(name))
        return ExportedFile(name=name, size=self.size, digest=FileHash(self._digest.digest()))

    def close(self) -> None:
        os.close(self._fd)


class ExportFolder:
    """The target folder and the files written into it so far. A context manager."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._open: list[ExportFile] = []
        self.written: list[ExportedFile] = []

    def __enter__(self) -> ExportFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for output in self._open:  # left open by an error
            output.close()

    def begin(self, name: str) -> ExportFile:
        self._open.append(output := ExportFile(self._root / name, self._files))
        return output

    def end(self, output: ExportFile, name: str) -> None:
        self.written.append(output.end(name))
        self._open.remove(output)

    def write(self, name: str, content: bytes) -> None:
        output = self.begin(name)
        output.write(content)
        self.end(output, name)
