"""The folder of a witness: its key, its settings and its memory.

witness.key     the secret key on one line, mode 0600: ``PRIVATE+KEY+<name>+<key id>+<base64>``
witness.yaml    the logs that the witness cosigns, and where it listens
memory/         the newest cosigned checkpoint of each log, and contradictions (``memory``)
lock            a note of the process that has the folder open

Nothing may be copied back from a backup but the key and the settings together with the *newest* memory.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError, DecodeError
from veen_core.keys import SigningSeed
from veen_core.tlog.note import check_name
from veen_hub.witness.config import parse_log_key
from veen_hub.witness.key import WitnessKey, parse_secret_line
from veen_hub.witness.memory import Memory
from veen_storage import SECRET, Files

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


class Folder:
    """The paths of a witness's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key_file = root / "witness.key"
        self.config_file = root / "witness.yaml"
        self.memory = root / "memory"

    def create(self, name: str, seed: SigningSeed, log_vkeys: Sequence[str]) -> WitnessKey:
        """Make a new witness; refuse a folder that is not empty."""
        try:
            check_name(name, "the witness's name")
        except DecodeError as exc:
            raise ConfigError(
                str(exc),
                action="use a URL without scheme, such as witness.example.org/w1, without spaces and +",
            ) from None
        for vkey in log_vkeys:
            parse_log_key(vkey)
        if self.key_file.exists():
            raise ConfigError(
                f"{self.root} is the folder of a witness; its key is not overwritten",
                action="choose another folder",
            )
        if self.root.exists() and any(self.root.iterdir()):
            raise ConfigError(f"{self.root} is not empty", action="choose another folder, or empty it")
        key, files = WitnessKey.of(name, seed), Files()
        files.make_directories(self.root, 0o700)
        Memory.create(self.memory, key.verifier)
        files.sync_directory(self.memory)
        files.replace(self.config_file, _settings(log_vkeys).encode())
        files.replace(self.key_file, key.secret_line.encode(), SECRET)  # the last step makes it a witness
        return key

    def load_key(self) -> WitnessKey:
        """Read the secret key; refuse one that other users can read."""
        try:
            mode = self.key_file.stat().st_mode
            line = self.key_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(
                f"{self.root} is not the folder of a witness: {self.key_file.name} is missing",
                action=f"check the name, or make one with `veen witness init NAME --dir {self.root}`",
            ) from None
        if stat.S_IMODE(mode) & 0o077:
            raise ConfigError(
                f"{self.key_file} can be read by other users (mode {stat.S_IMODE(mode):o})",
                action=f"run `chmod 600 {self.key_file}`; make a new witness if someone may have read it",
            )
        return parse_secret_line(line, self.key_file)


def _settings(log_vkeys: Sequence[str]) -> str:
    if not log_vkeys:
        return _TEMPLATE.format(logs="logs: []")
    origins: dict[str, list[str]] = {}
    for vkey in log_vkeys:
        origins.setdefault(parse_log_key(vkey).name, []).append(vkey)
    lines = ["logs:"]
    for vkeys in origins.values():
        lines += ["  - keys:", *(f'      - "{vkey}"' for vkey in vkeys)]
    return _TEMPLATE.format(logs="\n".join(lines))
