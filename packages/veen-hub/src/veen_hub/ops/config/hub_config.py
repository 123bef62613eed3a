"""HubConfig: all settings of a hub, and the bounds and rules between them (spec-4 §4.3, §5.3).

The strings below the settings are the text of docs/hub-yaml.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal

from veen_core.errors import ConfigError
from veen_core.ids import StreamId, VerifyKey
from veen_core.limits import DEFAULT_LIMITS, MAXIMA
from veen_core.pow import MAX_DIFFICULTY
from veen_core.stream import stream_id
from veen_hub.ops.config.addresses import check_address, check_ca
from veen_hub.ops.config.console import ConsoleSettings
from veen_hub.ops.config.discovery import DiscoverySettings
from veen_hub.ops.config.file_drop import FileSettings
from veen_hub.ops.config.h3 import H3Settings
from veen_hub.ops.config.hub_log import HubLogSettings
from veen_hub.ops.config.nats import NatsSettings
from veen_hub.ops.config.sections import (
    AnchorSettings,
    AttachmentLimits,
    Checkpoints,
    ClientKeys,
    Listen,
    Network,
    Policy,
    Pow,
    Probes,
    RealmSettings,
    Replication,
    Retention,
    Tls,
)
from veen_hub.ops.config.setting_error import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """All settings; limits and profile belong to the data directory and are fixed when it is made."""

    data_dir: Path = Path("/var/lib/veen")
    """The data directory, made once with ``veen hub init``."""
    keys_dir: Path | None = None
    """Folder of the hub's secret keys, if they are not in the data directory."""
    replica_of: str | None = None
    """``http(s)://host[:port]`` of the primary, if this hub is a replica: it signs nothing (P9)."""
    replica_pinned: str | None = None
    """hub_id of the primary, in hex; without it, the hub that answers first is taken for the primary."""
    replica_ca: Path | None = None
    """PEM file, if this machine does not trust the primary's certificate."""
    replica_cert: Path | None = None
    """PEM file with the replica's certificate, if the primary requires one of its readers."""
    replica_key: Path | None = None
    """PEM file with the private key of `replica_cert`, if that file does not have it."""
    role: Literal["authority", "tenant"] = "tenant"
    """The hub's role (spec-4 §2); ``hub_profile`` is another name of this setting."""
    tenant_id: str | None = None
    """Included in every log line."""
    universe_id: str = "default"
    """Included in every log line."""
    authority_url: str | None = None
    """``http(s)://host[:port]``: a tenant is ready only while its authority can be reached (spec-4 §10.1)."""
    authority_ca: Path | None = None
    """PEM file, if this machine does not trust the authority's certificate."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """At ``debug`` every message is a line; at ``info`` a summary of submits is logged once a minute."""
    gating: bool = True
    """Whether writers need a cap token; without gating anyone who reaches the port may write (H20)."""
    issuers: tuple[VerifyKey, ...] = ()
    """Public keys in hex whose cap tokens the hub accepts, in addition to its admin key (H18)."""
    streams: tuple[str, ...] = ()
    """Stream names that the hub may know (H4); they appear in its metrics."""
    clock: str = "wall"
    """``wall`` for the machine's clock, or the entry point of another package's clock."""
    shards: int | Literal["auto"] = 1
    """Number of processes that order messages, each with labels of its own; ``auto`` is one per core.

    It must be the number that the data directory was made for (``veen hub reshard``).
    Each shard has the limits ``listen.max_connections``, ``max_waiting`` and ``max_wait_ms`` for itself;
    ``hub_log.max_entries`` has no effect.
    """
    workers: int = 2
    """Threads that verify messages; under load each has a process of its own."""
    max_waiting: int = 8_192
    """Messages in verification and sequencing beyond which the hub answers 503 (OP0.4)."""
    max_wait_ms: int = 100
    """Estimated time in the queue beyond which the hub answers 503, with ``Retry-After``.

    It is estimated from the rate at which messages were accepted lately.
    A writer's messages are counted against its share of the queue.
    Up to 256 requests with 1,024 messages together may always wait.
    """
    max_page_items: int = 1_000
    """Most entries in one page of a read."""
    listen: Listen = field(default_factory=Listen)
    probes: Probes = field(default_factory=Probes)
    console: ConsoleSettings | None = None
    h3: H3Settings | None = None
    nats: NatsSettings | None = None
    file: FileSettings | None = None
    tls: Tls | None = None
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    hub_log: HubLogSettings = field(default_factory=HubLogSettings)
    anchor: AnchorSettings = field(default_factory=AnchorSettings)
    retention: Retention = field(default_factory=Retention)
    replication: Replication = field(default_factory=Replication)
    pow: Pow = field(default_factory=Pow)
    network: Network = field(default_factory=Network)
    attachments: AttachmentLimits = field(default_factory=AttachmentLimits)
    client_keys: ClientKeys | None = None
    policy: Policy = field(default_factory=Policy)
    level: Literal["core", "federated", "hardened", "meta", "access"] = "core"
    """Which rules of its realm the hub enforces (spec-2 §8)."""
    realm: RealmSettings | None = None
    discovery: DiscoverySettings | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of a new data directory (core §14.1); must equal the limits of an existing one."""

    def __post_init__(self) -> None:
        for key, (least, most) in BOUNDS.items():
            section = key.partition(".")[0]
            value = attrgetter(key)(self) if getattr(self, section) is not None else None
            if value is not None and not least <= value <= most:
                raise SettingError(key, f"{value} is not between {least} and {most}")
        for name in self.limits:
            if name not in MAXIMA:
                raise SettingError(f"limits.{name}", f"unknown limit; known are {', '.join(MAXIMA)}")
        try:
            DEFAULT_LIMITS.lowered(self.limits)
        except ConfigError as exc:
            raise SettingError("limits", f"{exc}") from None
        if self.authority_url is not None:
            check_address("authority_url", self.authority_url)
        check_ca("authority_ca", self.authority_ca, "authority_url", self.authority_url)
        self._check_replica()
        self._check_shards()
        if not self.listen.host:
            raise SettingError("listen.host", 'empty; "0.0.0.0" or "::" listens on every address')
        if self.tls is not None and self.tls.client_certificate != "always" and self.tls.client_ca is None:
            raise SettingError("tls.client_certificate", "has no effect without tls.client_ca")
        self._check_console()
        self._check_hidden_clients()
        self._check_h3()
        if self.level != "core":
            self._check_realm()
        self._check_memories()
        if self.pow.max_difficulty and self.pow.max_difficulty < self.pow.difficulty:
            raise SettingError("pow.max_difficulty", "must not be below pow.difficulty")

    @property
    def shard_count(self) -> int:
        """The number of shards, ``auto`` resolved."""
        return len(os.sched_getaffinity(0)) if self.shards == "auto" else self.shards

    def _check_shards(self) -> None:
        """Refuse settings that a hub with several shards does not support."""
        if self.shards != "auto" and not 1 <= self.shards <= MAX_SHARDS:
            raise SettingError("shards", f"{self.shards} is not between 1 and {MAX_SHARDS}, and not auto")
        if self.shard_count == 1:
            return
        for key, given in (
            ("replica_of", self.replica_of is not None),
            ("console", self.console is not None),
            ("h3", self.h3 is not None),
            ("nats", self.nats is not None),
            ("file", self.file is not None),
        ):
            if given:
                raise SettingError(key, "is not supported with more than one shard; remove it, or shards")
        if self.anchor.backend != "none" and self.hub_log.memories.anchors:
            raise SettingError(
                "hub_log.memories.anchors",
                "is not supported with more than one shard; set it to false, and use another memory",
            )

    def _check_replica(self) -> None:
        if self.replica_of is not None:
            check_address("replica_of", self.replica_of)
        elif self.replica_pinned is not None:
            raise SettingError("replica_pinned", "has no effect without replica_of")
        check_ca("replica_ca", self.replica_ca, "replica_of", self.replica_of)
        check_ca("replica_cert", self.replica_cert, "replica_of", self.replica_of)
        if self.replica_key is not None and self.replica_cert is None:
            raise SettingError("replica_key", "has no effect without replica_cert")

    def _check_console(self) -> None:
        if self.console is None:
            return
        if self.console.is_beyond_loopback and self.tls is None:
            raise SettingError(
                "console.host", f"{self.console.host} can be reached from other machines, and tls is not set"
            )
        if self.tls is not None and self.tls.client_ca is not None and self.console.token_file is None:
            raise SettingError(
                "console.token_file",
                "missing; tls.client_ca is set, and without a token the console would "
                "let readers in who have no certificate",
            )

    def _check_hidden_clients(self) -> None:
        """Refuse transports without client certificates where clients need one, unless they are allowed."""
        if self.tls is None or self.tls.client_ca is None:
            return
        for name, transport in (("nats", self.nats), ("file", self.file)):
            if transport is not None and not transport.without_certificates:
                raise SettingError(
                    f"{name}.without_certificates",
                    "tls.client_ca asks clients for certificates, which this transport does not show to the "
                    "hub; set it to true if the transport decides who gets in",
                )

    def _check_h3(self) -> None:
        if self.h3 is None:
            return
        if self.tls is None:
            raise SettingError("h3", "needs tls.cert and tls.key; QUIC has no plain form")
        if self.tls.client_ca is not None:
            raise SettingError(
                "h3", "client certificates cannot be asked for over HTTP/3; remove tls.client_ca, or h3"
            )

    def _check_memories(self) -> None:
        path = self.hub_log.memories.heads_file
        if path is not None and path.absolute().is_relative_to(self.data_dir.absolute()):
            raise SettingError(
                "hub_log.memories.heads_file",
                "is in data_dir, and so would be in every old copy of it; give a file on another volume",
            )

    def _check_realm(self) -> None:
        if self.realm is None:
            raise SettingError("level", f"{self.level} needs a realm; set realm.id and realm.key")
        if self.realm.url is None and self.tls is not None:
            raise SettingError(
                "realm.url", "missing; with TLS, set it to this hub's address, and realm.pinned to its hub_id"
            )
        if self.level == "access" and not self.gating:
            raise SettingError(
                "level", "access admits by grants, so it needs gating; remove `--open` or `gating: false`"
            )
        if self.policy.name is not None:
            raise SettingError(
                "policy.name", "a level above core has its own policy; remove one of the two settings"
            )

    @property
    def stream_ids(self) -> tuple[StreamId, ...]:
        return tuple(stream_id(name) for name in self.streams)


INT_MAX: Final = 2**31 - 1
MAX_SHARDS: Final = 64
BOUNDS: Mapping[str, tuple[int, int]] = {
    "workers": (1, 256),
    "max_waiting": (1, INT_MAX),
    "max_wait_ms": (1, INT_MAX),
    "max_page_items": (1, 65_536),
    "listen.port": (0, 65_535),
    "listen.max_connections": (1, INT_MAX),
    "listen.backlog": (1, INT_MAX),
    "listen.request_timeout_sec": (1, INT_MAX),
    "listen.follower_timeout_sec": (1, INT_MAX),
    "probes.port": (0, 65_535),
    "probes.max_connections": (1, INT_MAX),
    "console.port": (0, 65_535),
    "console.max_connections": (1, INT_MAX),
    "h3.port": (0, 65_535),
    "h3.max_connections": (1, INT_MAX),
    "file.poll_ms": (1, INT_MAX),
    "file.status_sec": (1, INT_MAX),
    "file.max_senders": (1, 65_536),
    "nats.max_requests": (1, INT_MAX),
    "nats.max_followers": (1, INT_MAX),
    "checkpoints.every_entries": (1, INT_MAX),
    "hub_log.interval_sec": (1, INT_MAX),
    "hub_log.max_entries": (1, INT_MAX),
    "hub_log.recosign_sec": (1, INT_MAX),
    "pow.difficulty": (0, MAX_DIFFICULTY),
    "pow.max_difficulty": (0, MAX_DIFFICULTY),
}
"""Smallest and largest value of a setting; every other number must be at least 0."""
