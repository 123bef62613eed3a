"""The names in the data directory of a sharded hub, and the owner of each label. Nothing is written here.

VERSION             format 2, and the hash of shards.cbor: code for one directory refuses it
shards.cbor         number of shards, and the generation: random bytes, new at each resharding
keys/               the hub's secret keys, unless the operator keeps them in another folder
lock                a note of the process that has the directory open
parts/control/      control label and attachments: a data directory that can only be opened as a part
parts/shard-K/      the labels of shard K, and a copy of the control label
fences/shard-K      number of the process that may write the part (fence)
joined/             the hub log over all parts (joined_hub_log)
sockets/            unix sockets of the running processes

A label is a hash already. Its first eight bytes, modulo the number of shards, are the number of its owner.
The control label belongs to the control part. A shard's copy of the control label gives it the tokens, as
entries with the receipts of the control part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veen_core import hub_log, stream
from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.ids import HubId, Label
from veen_core.wire import Wire, int_map
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import DATA, SHARDED_VERSION, read_version
from veen_storage.errors import RESTORE, DamageError, MismatchError, read_file

MAX_SHARDS: Final = 64
GENERATION_BYTES: Final = 16
CONTROL: Final = -1
"""Number of the control part, which has no shard's number."""


@int_map("shard map", section="ADR 0033")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMap(Wire):
    """How many shards a directory has; content of shards.cbor."""

    ver: Literal[1] = 1
    count: int
    generation: bytes
    """Part of the names of the parts' own hub logs, so that no name is used for two logs."""


def owner_of(label: Label, count: int) -> int:
    """Return the number of the shard that owns a label, unless it is the control label."""
    return int.from_bytes(label[:8], "big") % count


@dataclass(frozen=True, slots=True)
class ShardedLayout:
    """The paths of one sharded directory."""

    root: Path

    @property
    def shard_map(self) -> Path:
        return self.root / "shards.cbor"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def parts(self) -> Path:
        return self.root / "parts"

    @property
    def fences(self) -> Path:
        return self.root / "fences"

    @property
    def sockets(self) -> Path:
        return self.root / "sockets"

    @property
    def joined(self) -> Layout:
        return Layout(self.root / "joined")

    def part(self, number: int) -> Layout:
        return Layout(self.parts / part_name(number))

    def fence(self, number: int) -> Path:
        return self.fences / part_name(number)


def part_name(number: int) -> str:
    """Return the name of a part: of its folder, its socket, and in messages."""
    return "control" if number == CONTROL else f"shard-{number}"


def part_numbers(count: int) -> tuple[int, ...]:
    """Return the numbers of all parts, the control part first."""
    return (CONTROL, *range(count))


def is_sharded(root: Path) -> bool:
    """Return whether a data directory has several parts; raise if it is no data directory."""
    magic, version, _digest = read_version(Layout(root))
    return magic == DATA and version == SHARDED_VERSION


def read_shard_map(layout: ShardedLayout) -> ShardMap:
    """Read the number of shards of a sharded directory."""
    magic, version, digest = read_version(Layout(layout.root))
    if (magic, version) != (DATA, SHARDED_VERSION):
        raise MismatchError(f"{layout.root} is not the data directory of a sharded hub")
    content = read_file(layout.shard_map)
    if H(content).hex() != digest:
        raise DamageError(layout.shard_map.name, None, "is not the one that VERSION names", RESTORE)
    try:
        found = ShardMap.decode(content)
    except DecodeError as exc:
        raise DamageError(layout.shard_map.name, None, str(exc), RESTORE) from exc
    if not 2 <= found.count <= MAX_SHARDS or len(found.generation) != GENERATION_BYTES:
        raise DamageError(layout.shard_map.name, None, f"has {found.count} shards", RESTORE)
    return found


def control_label_of(hub: HubId) -> Label:
    """Return the control label of a hub (RESOLUTIONS H5)."""
    return stream.control_label(stream.routing_key(hub))


def part_origin(hub: HubId, shards: ShardMap, number: int) -> str:
    """Return the name of a part's own hub log, which no client ever sees."""
    return f"{hub_log.origin_of(hub)}/{shards.generation.hex()}/{part_name(number)}"
