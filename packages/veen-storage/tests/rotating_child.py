"""A hub that gets new keys while others read beside it: ``python rotating_child.py <data directory>``.

Each line on stdin is done and answered with ``done``:

    write <n>    n messages to ORDERS, applied
    rotate <k>   closed, rotated to key ``hub/<k>``, opened again; the next message is signed by it
    pause <k>    the same, but before each change of a file it says its name and waits for a line
"""

from __future__ import annotations

import sys
from pathlib import Path

from sample import BORN, ORDERS, Unsynced, send, signing_key

from veen_core.ids import UnixTime
from veen_storage.disk.files import Files
from veen_storage.opening.rotation import rotate
from veen_storage.store import Store


class PausingFiles(Unsynced):
    """Stops before each file of the identity is replaced or removed."""

    def replace(self, path: Path, content: bytes, mode: int = 0o644, *, sync_directory: bool = True) -> None:
        self._pause(path)
        super().replace(path, content, mode, sync_directory=sync_directory)

    def remove(self, path: Path) -> None:
        self._pause(path)
        super().remove(path)

    def _pause(self, path: Path) -> None:
        if path.name.startswith("hub-"):
            say(path.name)
            sys.stdin.readline()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def renew(root: Path, key: int, files: Files) -> None:
    valid_from = UnixTime(BORN + 1_000 * key)
    rotate(root, signing_key(f"hub/{key}"), valid_from, 10, files=files)


def main(root: Path) -> None:
    store, now = Store(root, files=Unsynced()), BORN
    say("ready")
    for line in sys.stdin:
        what, number = line.split()
        if what == "write":
            for _ in range(int(number)):
                send(store, ORDERS, now=UnixTime(now := now + 1))
            assert store.settle()
        else:
            store.close()
            renew(root, int(number), PausingFiles() if what == "pause" else Unsynced())
            store, now = Store(root, files=Unsynced()), BORN + 1_000 * int(number) + 20
        say("done")
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
