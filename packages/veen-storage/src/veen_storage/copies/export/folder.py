"""The folder of an export in the making: every file buffered, hashed, and synced when it ends."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from veen_storage.copies.export.format import ExportedFile, FileHash
from veen_storage.disk.files import Files

BUFFER: Final = 1_048_576


class Output:
    """One file in the making: buffered, hashed, synced when it ends."""

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
        if self._held >= BUFFER:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._parts)
        self._files.write(self._fd, data, self.size - self._held)
        self._digest.update(data)
        self._parts, self._held = [], 0

    def end(self, name: str) -> ExportedFile:
        """Synced and closed, under its final name."""
        self._flush()
        self._files.sync(self._fd)
        self.close()
        if self.path.name != name:
            self._files.rename(self.path, self.path.with_name(name))
        return ExportedFile(name=name, size=self.size, digest=FileHash(self._digest.digest()))

    def close(self) -> None:
        os.close(self._fd)


class Folder:
    """The target, and what was written into it."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._open: list[Output] = []
        self.written: list[ExportedFile] = []

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        for output in self._open:  # those that an error cut off
            output.close()

    def begin(self, name: str) -> Output:
        self._open.append(output := Output(self._root / name, self._files))
        return output

    def end(self, output: Output, name: str) -> None:
        self.written.append(output.end(name))
        self._open.remove(output)

    def write(self, name: str, content: bytes) -> None:
        output = self.begin(name)
        output.write(content)
        self.end(output, name)
