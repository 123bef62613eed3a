"""hub.yaml: every setting, declared once, with its type, default and bounds (spec-4 §4.3, §5.3).

Precedence: command-line flags, then ``VEEN_*`` environment variables, then the file, then defaults. The
strings below the settings are the text of docs/hub-yaml.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

from veen_core.errors import ConfigError
from veen_core.ids import Label, StreamId, VerifyKey
from veen_core.limits import DEFAULT_LIMITS, MAXIMA
from veen_core.pow import MAX_DIFFICULTY
from veen_core.stream import stream_id
from veen_hub import extension
from veen_hub.ops import config_file
from veen_hub.ops.config_addresses import check_address, check_ca
from veen_hub.ops.config_discovery import DiscoverySettings
from veen_hub.ops.config_hub_log import HubLogSettings
from veen_hub.ops.config_schema import build, kind_name

IpRange = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The API's address and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` or `::` listens on every address."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    max_connections: int = 20_000
    """Open connections, TLS handshakes included. A further connection is answered with 503 and closed."""
    backlog: int = 1_024
    """Connections that wait in the operating system's queue to be accepted."""
    request_timeout_sec: int = 30
    """A request whose body has not arrived after this time is refused."""
    follower_timeout_sec: int = 10
    """A client that reads slower than 32 KiB/s for this long is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The listener of `/readyz` and `/metrics` (spec-4 §10), in plain HTTP and separate from the API.

    Both answer even if the API has no free connection. They name streams and storage errors: keep the address
    private to the machine or the cluster.
    """

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int | None = None
    """Port to listen on; by default `listen.port` + 1, or any free one if `listen.port` is 0."""
    max_connections: int = 256
    """Open connections; a further connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS for the API: 1.2 or later, AEAD suites only (SH0.3)."""

    cert: Path
    """PEM file with the hub's certificate chain."""
    key: Path
    """PEM file with the certificate's private key."""
    client_ca: Path | None = None
    """PEM file with the authority whose client certificates the hub accepts (COMP0.3)."""
    client_certificate: Literal["always", "reading"] = "always"
    """With `client_ca`: clients need a certificate for every connection, or only to read the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Schedule of checkpoints (OP0.5)."""

    every_entries: int = 4_096
    """Entries of a label after which it gets a checkpoint."""
    every_sec: int = 60
    """Seconds after which each label that grew gets a checkpoint; 0 disables this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """Where checkpoints are anchored (ANCHOR0.2): in a file ledger, or in a stream of another hub."""

    backend: str = "none"
    """``none`` for no anchors, ``file``, ``hub``, or the name of another package's backend."""
    path: Path | None = None
    """Backend ``file``: the ledger file."""
    url: str | None = None
    """Backend ``hub``: address of the anchoring hub."""
    stream: str = "veen/anchors"
    """Backend ``hub``: stream on the anchoring hub."""
    pinned: str | None = None
    """Backend ``hub``: hub_id of the anchoring hub, in hex."""
    ca: Path | None = None
    """Backend ``hub``: PEM file, if this machine does not trust the anchoring hub's certificate."""
    identity: Path | None = None
    """Backend ``hub``: file with the secrets (CBOR, mode 0600) this hub signs its anchors with."""
    token: Path | None = None
    """Backend ``hub``: file with a cap token (CBOR) for that identity, if the anchoring hub is gated."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for another package's backend."""
    every_sec: int = 300
    """Interval in seconds at which new checkpoints are anchored."""
    retry_sec: int = 30
    """Pause in seconds before a failed attempt is repeated."""

    def __post_init__(self) -> None:
        if self.backend != "none":
            extension.find(extension.ANCHORS, self.backend, "anchor.backend")
        if self.backend == "file" and self.path is None:
            raise ConfigError("anchor.path: missing; backend file needs the path of its ledger")
        if self.path is not None and not self.path.parent.is_dir():
            raise ConfigError(f"anchor.path: folder {self.path.parent} does not exist")
        if self.path is not None and self.path.is_dir():
            raise ConfigError(f"anchor.path: {self.path} is a folder; give a file in it")
        if self.backend == "hub" and self.url is None:
            raise ConfigError("anchor.url: missing; backend hub needs the address of the anchoring hub")
        check_ca("anchor.ca", self.ca, "anchor.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Rule for pruning payloads; receipts and proofs are always kept."""

    max_age_sec: int | None = None
    """Prune payloads older than this, once their chunk is full (max_checkpoint_interval, max_chunk_bytes)."""
    max_bytes: int | None = None
    """Prune the label's oldest chunks beyond this size."""
    long_term: bool = False
    """Keep everything."""

    def __post_init__(self) -> None:
        if self.long_term and (self.max_age_sec is not None or self.max_bytes is not None):
            raise ConfigError("retention: long_term keeps everything; remove max_age_sec and max_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention rules (COMP0.1)."""

    default: RetentionRule = RetentionRule(long_term=True)
    """The rule of labels without one of their own."""
    streams: Mapping[str, RetentionRule] = field(default_factory=dict)
    """Rules by stream name."""
    labels: Mapping[Label, RetentionRule] = field(default_factory=dict)
    """Rules by label, in hex."""
    every_sec: int = 3_600
    """Interval in seconds at which the rules are applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pow:
    """Proof of work that a submit must carry (SH1+ 5.2)."""

    difficulty: int = 0
    """Bits that are always required."""
    max_difficulty: int = 0
    """Bits that are required when the queue is full; in between, the difficulty rises with the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Client addresses that may submit and upload (SH1+ 5.1)."""

    allow: tuple[IpRange, ...] = ()
    """Address ranges that are allowed; an empty list allows all addresses."""
    deny: tuple[IpRange, ...] = ()
    """Address ranges that are denied, even if `allow` contains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentLimits:
    """Quotas for attachments, in addition to the limit max_attachment_bytes; 0 means no quota."""

    max_bytes: int = 0
    """Bytes of all attachments on this hub."""
    max_bytes_per_token: int = 16 * 1_073_741_824
    """Bytes that one token may store; without gating, one client_id."""
    max_puts_per_token: int = 1_000_000
    """Uploads that one token may make; without gating, one client_id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKeys:
    """Bounds on the use of one client_id (KEX1+ 4.1); enforced if given, and from level hardened on."""

    max_client_id_lifetime_sec: int = 86_400
    """Longest time a client_id may write to a label."""
    max_msgs_per_client_id_per_label: int = 65_536
    """Most messages a client_id may write to a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An admission policy from another package."""

    name: str | None = None
    """Entry point of the policy in the group `veen_hub.policies`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that are passed to the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRate:
    """A token bucket, as in a cap token."""

    per_sec: int
    """Messages per second."""
    burst: int
    """Most messages at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealmSettings:
    """The realm whose admin streams a hub above level core follows."""

    id: str
    """The realm's name, or its id in hex."""
    key: Path
    """File with the secrets (CBOR, mode 0600) that open the admin streams."""
    url: str | None = None
    """Address of the hub that has the admin streams; by default this hub."""
    pinned: str | None = None
    """hub_id of the hub at `realm.url`, in hex."""
    ca: Path | None = None
    """PEM file, if this machine does not trust the certificate of the hub at `realm.url`."""
    max_view_age_sec: int = 30
    """The hub refuses all messages while its view of the realm is older than this, in seconds."""
    refresh_ms: int = 200
    """Interval in milliseconds at which the view is updated."""
    rates: Mapping[str, ClassRate] = field(default_factory=dict)
    """Rate of each writer at each label, by label class; other classes get a share of the token's rate."""

    def __post_init__(self) -> None:
        if (self.url is None) != (self.pinned is None):
            raise ConfigError(
                "realm: give both url and pinned, or neither if this hub holds the admin streams"
            )
        if not self.refresh_ms or self.refresh_ms >= 1_000 * self.max_view_age_sec:
            raise ConfigError("realm.refresh_ms: must be at least 1, and shorter than realm.max_view_age_sec")
        check_ca("realm.ca", self.ca, "realm.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What a hub keeps for its replicas (RESOLUTIONS P9)."""

    keep_bytes: int = 1_073_741_824
    """Bytes of applied journal that are kept, so that a replica can be away for a while; 0 keeps nothing."""
    keep_sec: int = 86_400
    """Longest time that applied journal is kept; payloads that retention prunes leave it at once."""


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
    workers: int = 2
    """Threads that verify messages; under load each has a process of its own."""
    max_waiting: int = 8_192
    """Messages in verification and sequencing beyond which the hub answers 503 (OP0.4)."""
    max_page_items: int = 1_000
    """Most entries in one page of a read."""
    listen: Listen = Listen()
    probes: Probes = Probes()
    tls: Tls | None = None
    checkpoints: Checkpoints = Checkpoints()
    hub_log: HubLogSettings = field(default_factory=HubLogSettings)
    anchor: AnchorSettings = AnchorSettings()
    retention: Retention = Retention()
    replication: Replication = Replication()
    pow: Pow = Pow()
    network: Network = Network()
    attachments: AttachmentLimits = AttachmentLimits()
    client_keys: ClientKeys | None = None
    policy: Policy = Policy()
    level: Literal["core", "federated", "hardened", "meta", "access"] = "core"
    """Which rules of its realm the hub enforces (spec-2 §8)."""
    realm: RealmSettings | None = None
    discovery: DiscoverySettings | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of a new data directory (core §14.1); must equal the limits of an existing one."""

    def __post_init__(self) -> None:
        for key, (least, most) in BOUNDS.items():
            value = attrgetter(key)(self)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{key}: {value} is not between {least} and {most}")
        for name in self.limits:
            if name not in MAXIMA:
                raise ConfigError(f"limits.{name}: unknown limit; known are {', '.join(MAXIMA)}")
        try:
            DEFAULT_LIMITS.lowered(self.limits)
        except ConfigError as exc:
            raise ConfigError(f"limits: {exc}") from None
        if self.authority_url is not None:
            check_address("authority_url", self.authority_url)
        check_ca("authority_ca", self.authority_ca, "authority_url", self.authority_url)
        self._check_replica()
        if not self.listen.host:
            raise ConfigError('listen.host: empty; "0.0.0.0" or "::" listens on every address')
        if self.tls is not None and self.tls.client_certificate != "always" and self.tls.client_ca is None:
            raise ConfigError("tls.client_certificate: has no effect without tls.client_ca")
        if self.level != "core":
            self._check_realm()
        self._check_memories()
        if self.pow.max_difficulty and self.pow.max_difficulty < self.pow.difficulty:
            raise ConfigError("pow.max_difficulty: must not be below pow.difficulty")

    def _check_replica(self) -> None:
        if self.replica_of is not None:
            check_address("replica_of", self.replica_of)
        elif self.replica_pinned is not None:
            raise ConfigError("replica_pinned: has no effect without replica_of")
        check_ca("replica_ca", self.replica_ca, "replica_of", self.replica_of)
        check_ca("replica_cert", self.replica_cert, "replica_of", self.replica_of)
        if self.replica_key is not None and self.replica_cert is None:
            raise ConfigError("replica_key: has no effect without replica_cert")

    def _check_memories(self) -> None:
        path = self.hub_log.memories.heads_file
        if path is not None and path.absolute().is_relative_to(self.data_dir.absolute()):
            raise ConfigError(
                "hub_log.memories.heads_file: is in data_dir, and so would be in every old copy of it; "
                "give a file on another volume"
            )

    def _check_realm(self) -> None:
        if self.realm is None:
            raise ConfigError(f"level: {self.level} needs a realm; set realm.id and realm.key")
        if self.realm.url is None and self.tls is not None:
            raise ConfigError(
                "realm.url: missing; with TLS, set it to this hub's address, and realm.pinned to its hub_id"
            )
        if self.level == "access" and not self.gating:
            raise ConfigError(
                "level: access admits by grants, so it needs gating; remove `--open` or `gating: false`"
            )
        if self.policy.name is not None:
            raise ConfigError(
                "policy.name: a level above core has its own policy; remove one of the two settings"
            )

    @property
    def stream_ids(self) -> tuple[StreamId, ...]:
        return tuple(stream_id(name) for name in self.streams)


INT_MAX: Final = 2**31 - 1
BOUNDS: Mapping[str, tuple[int, int]] = {
    "workers": (1, 256),
    "max_waiting": (1, INT_MAX),
    "max_page_items": (1, 65_536),
    "listen.port": (0, 65_535),
    "listen.max_connections": (1, INT_MAX),
    "listen.backlog": (1, INT_MAX),
    "listen.request_timeout_sec": (1, INT_MAX),
    "listen.follower_timeout_sec": (1, INT_MAX),
    "probes.port": (0, 65_535),
    "probes.max_connections": (1, INT_MAX),
    "checkpoints.every_entries": (1, INT_MAX),
    "hub_log.interval_sec": (1, INT_MAX),
    "hub_log.max_entries": (1, INT_MAX),
    "hub_log.recosign_sec": (1, INT_MAX),
    "pow.difficulty": (0, MAX_DIFFICULTY),
    "pow.max_difficulty": (0, MAX_DIFFICULTY),
}
"""Smallest and largest value of a setting; every other number must be at least 0."""


def load(path: Path | None, overrides: Mapping[str, Any]) -> HubConfig:
    """Load the file and apply ``overrides``, whose keys are dotted."""
    settings = config_file.read(path) if path is not None else {}
    for old, new in ALIASES.items():
        if old in settings:
            settings.setdefault(new, settings.pop(old))
    try:
        for key, value in overrides.items():
            _set(settings, key.split("."), value)
        made = build(HubConfig, settings, "")
    except ConfigError as exc:
        if path is None or str(exc).partition(":")[0] in overrides:
            raise
        raise ConfigError(f"{path}: {exc}") from None
    assert isinstance(made, HubConfig)
    return made


ALIASES: Mapping[str, str] = {"hub_profile": "role"}
"""Other names of settings, as spec-4 §5.3 uses them in its ConfigMaps."""


def _set(settings: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        if settings.get(key) is None:  # or a section whose every line is commented out
            settings[key] = {}
        settings = settings[key]
        if not isinstance(settings, dict):
            raise ConfigError(f"{key}: must be a mapping, not {kind_name(settings)}")
    settings[keys[-1]] = value


ENVIRONMENT: Mapping[str, str] = {
    "VEEN_ROLE": "role",
    "VEEN_TENANT_ID": "tenant_id",
    "VEEN_UNIVERSE_ID": "universe_id",
    "VEEN_LOG_LEVEL": "log_level",
    "VEEN_DATA_DIR": "data_dir",
    "VEEN_KEYS_DIR": "keys_dir",
    "VEEN_AUTHORITY_URL": "authority_url",
    "VEEN_REPLICA_OF": "replica_of",
    "VEEN_LISTEN_HOST": "listen.host",
    "VEEN_LISTEN_PORT": "listen.port",
    "VEEN_PROBES_HOST": "probes.host",
    "VEEN_PROBES_PORT": "probes.port",
    "VEEN_TLS_CERT": "tls.cert",
    "VEEN_TLS_KEY": "tls.key",
    "VEEN_HEADS_FILE": "hub_log.memories.heads_file",
}


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that ``VEEN_*`` variables override."""
    found: dict[str, Any] = {}
    for variable, key in ENVIRONMENT.items():
        if value := environment.get(variable):
            found[key] = int(value) if key.endswith(".port") and value.isdecimal() else value
    return found
