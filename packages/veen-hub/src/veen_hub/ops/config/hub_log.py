"""The section ``hub_log`` of hub.yaml: cadence, witnesses and memories (RESOLUTIONS P1-P3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError, DecodeError
from veen_core.tlog.note import COSIGNATURE, NoteKey, check_name
from veen_hub.ops.config.addresses import check_address, check_ca
from veen_hub.ops.config.setting_error import SettingError

MAX_WITNESSES: Final = 32
"""Witnesses of one hub: their cosignatures must fit into one note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessSettings:
    """A witness that cosigns this hub's checkpoints (C2SP tlog-witness); it is a memory too (P3)."""

    key: NoteKey
    """The witness's verifier key, `<name>+<key id>+<base64>`; `veen witness status` prints it."""
    url: str
    """The witness's submission prefix; `/add-checkpoint` is appended to it."""
    ca: Path | None = None
    """PEM file, if this machine does not trust the witness's certificate."""

    def __post_init__(self) -> None:
        where = "hub_log.witnesses"
        if self.key.kind != COSIGNATURE:
            raise SettingError(
                f"{where}.key", f"{self.key.name} is the key of a log; give the key of the witness, of type 4"
            )
        check_address(f"{where}.url", self.url, path=True)
        check_ca(f"{where}.ca", self.ca, f"{where}.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Places that remember the newest hub checkpoint, asked before the hub signs anything (P3).

    Every witness is a memory too. A hub that is behind one of its memories signs nothing.
    """

    required: int = 1
    """Memories that must have answered before the hub signs; at most as many as are configured, or 1."""
    heads_file: Path | None = None
    """File on another volume, compared and swapped at each hub checkpoint. Create it with `touch`."""
    urls: tuple[str, ...] = ()
    """Addresses of servers with a copy of this hub's log, such as replicas; `/log/checkpoint` is read."""
    ca: Path | None = None
    """PEM file, if this machine does not trust the certificates of `urls`."""
    anchors: bool = True
    """Whether the ledger of `anchor` is a memory; backends other than `file` and `hub` never are."""

    def __post_init__(self) -> None:
        path, where = self.heads_file, "hub_log.memories"
        if path is not None and not path.parent.is_dir():
            raise SettingError(
                f"{where}.heads_file", f"folder {path.parent} does not exist; mount its volume, or create it"
            )
        if path is not None and path.is_dir():
            raise SettingError(f"{where}.heads_file", f"{path} is a folder; give a file in it")
        for position, url in enumerate(self.urls):
            check_address(f"{where}.urls[{position}]", url, path=True)
        if len(set(self.urls)) != len(self.urls):
            raise SettingError(f"{where}.urls", "an address is given twice; it counts once, so remove one")
        secure = next((url for url in self.urls if url.startswith("https://")), None)
        check_ca(f"{where}.ca", self.ca, f"one of {where}.urls", secure)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLogSettings:
    """The hub log (P1): how often it grows, who cosigns it, and who remembers it."""

    interval_sec: int = 1
    """Seconds between two hub checkpoints, if a label has grown since the last."""
    max_entries: int = 4_096
    """Log entries after which a hub checkpoint is made earlier."""
    origin: str | None = None
    """Name of the hub log in its checkpoints; by default `veen.hub/<hub_id>`."""
    recosign_sec: int = 60
    """Age in seconds at which cosignatures of an unchanged hub log are renewed."""
    witnesses: tuple[WitnessSettings, ...] = ()
    memories: MemorySettings = MemorySettings()

    def __post_init__(self) -> None:
        if self.origin is not None:
            try:
                check_name(self.origin, "hub_log.origin")
            except DecodeError as exc:
                raise ConfigError(f"{exc}; use no space and no plus sign") from None
        if len({witness.key.name for witness in self.witnesses}) != len(self.witnesses):
            raise SettingError("hub_log.witnesses", "a witness is given twice; remove one of the two")
        if len(self.witnesses) > MAX_WITNESSES:
            raise SettingError("hub_log.witnesses", f"{len(self.witnesses)} are more than {MAX_WITNESSES}")
