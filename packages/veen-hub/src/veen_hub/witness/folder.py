"""The folder of a witness: its key, its settings and its state.

witness.key     the secret key on one line, mode 0600: ``PRIVATE+KEY+<name>+<key id>+<base64>``
witness.yaml    the logs that the witness cosigns, and where it listens
state/          the newest cosigned checkpoint of each log, and contradictions (``state``)
lock            a note of the process that has the folder open

Never restore ``state/`` from an older copy: the witness would forget what it has cosigned since.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError, DecodeError
from veen_core.keys import SigningSeed
from veen_core.keystore import is_exposed
from veen_core.tlog.note import NoteKey, check_name, parse_key
from veen_hub.witness.config import check_log_key
from veen_hub.witness.key import WitnessKey, parse_secret_line
from veen_hub.witness.state import WitnessState
from veen_storage import SECRET_MODE, Files

_TEMPLATE: Final = """\
# Settings of a witness. Restart the witness after a change.
# Each log is named by its verifier keys: one line that the log's operator publishes
# (`veen hub keys --note` prints a hub's). Give both keys while a log rotates its key.
{logs}
#listen:
#  host: 0.0.0.0   # default: 127.0.0.1
#  port: 8090
#tls:
#  cert: /path/to/chain.pem
#  key: /path/to/key.pem
"""


class WitnessFolder:
    """The paths of a witness's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key_file = root / "witness.key"
        self.config_file = root / "witness.yaml"
        self.state = root / "state"

    def create(self, name: str, seed: SigningSeed, log_vkeys: Sequence[str]) -> WitnessKey:
        """Make a new witness; refuse a folder that is not empty."""
        try:
            if "://" in check_name(name, "the witness's name"):
                raise DecodeError(f"{name[:80]!r} has a scheme", where="the witness's name")
        except DecodeError as exc:
            raise ConfigError(
                str(exc),
                action="use a URL without scheme, such as witness.example.org/w1, without spaces and +",
            ) from None
        settings = _settings(list(map(_parse_log_key, log_vkeys)))
        if self.key_file.exists():
            raise ConfigError(
                f"{self.root} is the folder of a witness; its key is not overwritten",
                action="choose another folder",
            )
        if self.root.exists() and any(self.root.iterdir()):
            raise ConfigError(f"{self.root} is not empty", action="choose another folder, or empty it")
        key, files = WitnessKey.of(name, seed), Files()
        files.make_directories(self.root, 0o700)
        WitnessState.create(self.state, key.verifier)
        files.sync_directory(self.state)
        files.replace(self.config_file, settings.encode())
        files.replace(
            self.key_file, key.secret_line.encode(), SECRET_MODE
        )  # the last step makes it a witness
        return key

    def load_key(self) -> WitnessKey:
        """Read the secret key; refuse one that other users can read."""
        try:
            found = self.key_file.stat()
            line = self.key_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(
                f"{self.root} is not the folder of a witness: {self.key_file.name} is missing",
                action=f"check the name, or make one with `veen witness init NAME --dir {self.root}`",
            ) from None
        if is_exposed(found, os.geteuid(), (os.getegid(), *os.getgroups())):
            raise ConfigError(
                f"{self.key_file} can be read by other users (mode {stat.S_IMODE(found.st_mode):o})",
                action=f"run `chmod 600 {self.key_file}`; make a new witness if someone may have read it",
            )
        return parse_secret_line(line, self.key_file)


def _parse_log_key(text: str) -> NoteKey:
    try:
        key = parse_key(text)
    except DecodeError as exc:
        raise ConfigError(
            f"{text[:80]!r} is not a verifier key: {exc}",
            action="copy the whole line that the log's operator publishes",
        ) from None
    check_log_key(key)
    return key


def _settings(log_keys: Sequence[NoteKey]) -> str:
    if not log_keys:
        return _TEMPLATE.format(logs="logs: []")
    by_name: dict[str, list[NoteKey]] = {}
    for key in log_keys:
        by_name.setdefault(key.name, []).append(key)
    lines = ["logs:"]
    for keys in by_name.values():
        lines += ["  - keys:", *(f'      - "{key.text}"' for key in keys)]
    return _TEMPLATE.format(logs="\n".join(lines))
