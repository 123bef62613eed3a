"""The sections of hub.yaml: settings with types and defaults (spec-4 §4.3, §5.3).

The strings below the settings are the text of docs/hub-yaml.md. ``hub_log`` and ``discovery`` have modules of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal

from veen_core.ids import Label
from veen_hub import extension
from veen_hub.ops.config.addresses import check_ca
from veen_hub.ops.config.setting_error import SettingError
from veen_storage import JournalKeeping

IpRange = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The API's address and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` or `::` listens on every address."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    max_connections: int = 20_000
    """Open connections, TLS handshakes and followers included. A further connection is answered with 503 and
    closed. The limit of open files (`ulimit -n`) less 512 bounds it too. An idle follower takes 17 KB."""
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
            raise SettingError("anchor.path", "missing; backend file needs the path of its ledger")
        if self.path is not None and not self.path.parent.is_dir():
            raise SettingError("anchor.path", f"folder {self.path.parent} does not exist")
        if self.path is not None and self.path.is_dir():
            raise SettingError("anchor.path", f"{self.path} is a folder; give a file in it")
        if self.backend == "hub" and self.url is None:
            raise SettingError("anchor.url", "missing; backend hub needs the address of the anchoring hub")
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
            raise SettingError("retention", "long_term keeps everything; remove max_age_sec and max_bytes")


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
    max_count: int = 0
    """Number of all attachments on this hub."""
    max_bytes_per_token: int = 17_179_869_184
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
            raise SettingError(
                "realm", "give both url and pinned, or neither if this hub holds the admin streams"
            )
        if not self.refresh_ms or self.refresh_ms >= 1_000 * self.max_view_age_sec:
            raise SettingError(
                "realm.refresh_ms", "must be at least 1, and shorter than realm.max_view_age_sec"
            )
        check_ca("realm.ca", self.ca, "realm.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Applied journal that a hub keeps for its replicas (RESOLUTIONS P9)."""

    keep_bytes: int = 1_073_741_824
    """Bytes of applied journal that are kept, so that a replica can be away for a while; 0 keeps nothing.
    With several shards, each keeps as many."""
    keep_sec: int = 86_400
    """Longest time that applied journal is kept, in seconds. Payloads that retention prunes are removed from
    it at once."""

    @property
    def keeping(self) -> JournalKeeping:
        """The settings as the storage takes them."""
        return JournalKeeping(max_bytes=self.keep_bytes, max_age_sec=self.keep_sec)
