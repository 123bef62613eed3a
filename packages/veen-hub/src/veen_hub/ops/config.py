"""hub.yaml: every setting declared once, validated with messages that name the key (spec-4 §4.3, §5.3).

Order of precedence: command-line flags, then ``VEEN_*`` environment variables, then the file, then defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import Label, StreamId, VerifyKey
from veen_core.limits import DEFAULT_LIMITS, MAXIMA
from veen_core.pow import MAX_DIFFICULTY
from veen_core.stream import stream_id
from veen_hub import extension
from veen_hub.ops import config_file
from veen_hub.ops.config_schema import build, kind_name


def _check_ca(key: str, ca: Path | None, url_key: str, url: str | None) -> None:
    """A certificate that nobody would look at is a mistake: what was meant to be safe would not be."""
    if ca is not None and not (url or "").startswith("https://"):
        raise ConfigError(f"{key}: serves only an https:// address in {url_key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where the hub answers."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one."""
    max_connections: int = 20_000
    """TLS handshakes too. One too many is answered with 503, except to a probe, and ends."""
    backlog: int = 1_024
    """Connections that wait to be taken, in the system's own queue."""
    request_timeout_sec: int = 30
    """A request whose body is not there by then is refused."""
    follower_timeout_sec: int = 10
    """Who takes less than 32 KiB a second of what is sent, for so long, is dropped: a follower or another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files; ``client_ca`` asks clients for a certificate of that authority (COMP0.3)."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """A checkpoint of every label that grew, by count and by time (OP0.5)."""

    every_entries: int = 4_096
    """Of one label."""
    every_sec: int = 60
    """0 makes none by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """Where checkpoints are anchored (ANCHOR0.2): a file ledger, or another hub's stream."""

    backend: str = "none"
    """``file``, ``hub``, or what another package brings by entry point."""
    path: Path | None = None
    """Of the file ledger."""
    url: str | None = None
    """Of the anchoring hub."""
    stream: str = "veen/anchors"
    """There."""
    pinned: str | None = None
    """hub_id of the anchoring hub, in hex."""
    ca: Path | None = None
    """A PEM file, if the anchoring hub's certificate is not one that this machine trusts."""
    identity: Path | None = None
    """The file with the secrets (CBOR, 0600) under which this hub writes to the anchoring one."""
    token: Path | None = None
    """The file with a cap token (CBOR) for that identity, if the anchoring hub is gated."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For another package's backend."""
    every_sec: int = 300
    retry_sec: int = 30
    """After a failure."""

    def __post_init__(self) -> None:
        if self.backend != "none":
            extension.find(extension.ANCHORS, self.backend, "anchor.backend")
        if self.backend == "file" and self.path is None:
            raise ConfigError("anchor.path: a file ledger needs one")
        if self.path is not None and not self.path.parent.is_dir():
            raise ConfigError(f"anchor.path: there is no folder {self.path.parent}")
        if self.path is not None and self.path.is_dir():
            raise ConfigError(f"anchor.path: {self.path} is a folder: name a file in it")
        if self.backend == "hub" and self.url is None:
            raise ConfigError("anchor.url: anchoring in another hub needs one")
        _check_ca("anchor.ca", self.ca, "anchor.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """No bound unless one is given; ``long_term`` keeps everything and says so."""

    max_age_sec: int | None = None
    """Payloads older than this go once their chunk has ended (max_checkpoint_interval, max_chunk_bytes)."""
    max_bytes: int | None = None
    """Of the label's chunks: the oldest go first."""
    long_term: bool = False

    def __post_init__(self) -> None:
        if self.long_term and (self.max_age_sec is not None or self.max_bytes is not None):
            raise ConfigError("retention: long_term keeps everything; leave max_age_sec and max_bytes out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Rules by stream name or label in hex; ``default`` for all others, which keeps everything (COMP0.1)."""

    default: RetentionRule = RetentionRule(long_term=True)
    streams: Mapping[str, RetentionRule] = field(default_factory=dict)
    labels: Mapping[str, RetentionRule] = field(default_factory=dict)
    every_sec: int = 3_600
    """How often the rules are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pow:
    """Proof of work: ``difficulty`` always, up to ``max_difficulty`` as the queue fills (SH1+ 5.2)."""

    difficulty: int = 0
    max_difficulty: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Address ranges; a denied one wins, and an empty allow list allows all (SH1+ 5.1)."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKeys:
    """KEX1+ 4.1, enforced by the hub if given."""

    max_client_id_lifetime_sec: int = 86_400
    max_msgs_per_client_id_per_label: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An ``AdmissionPolicy`` by entry point, and its own options."""

    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRate:
    """A token bucket, as in a cap token."""

    per_sec: int
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RealmSettings:
    """Whose admin streams a hub above level core follows, where they are, and how old its view may be."""

    id: str
    """The realm's name, or its id in hex."""
    key: Path
    """The file with the secrets (CBOR, 0600) that open the admin streams."""
    url: str | None = None
    """The hub that holds them; this one, if left out."""
    pinned: str | None = None
    """Its hub_id, in hex."""
    ca: Path | None = None
    max_view_age_sec: int = 30
    """From an older view nothing is accepted."""
    refresh_ms: int = 200
    rates: Mapping[str, ClassRate] = field(default_factory=dict)
    """By label class, for each writer at each label; without one, a class takes a share of a token's."""

    def __post_init__(self) -> None:
        if (self.url is None) != (self.pinned is None):
            raise ConfigError("realm: url and pinned go together; without both, this hub holds the streams")
        if not self.refresh_ms or self.refresh_ms >= 1_000 * self.max_view_age_sec:
            raise ConfigError("realm.refresh_ms: want at least 1, and less than max_view_age_sec")
        _check_ca("realm.ca", self.ca, "realm.url", self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """Everything that can be set; the data directory's own limits and profile cannot."""

    data_dir: Path = Path("/var/lib/veen")
    """Made once with ``veen hub init``."""
    keys_dir: Path | None = None
    """Where the hub's secret keys lie, if not in the data directory."""
    role: Literal["authority", "tenant"] = "tenant"
    """spec-4 §2; ``hub_profile`` is the same."""
    tenant_id: str | None = None
    """Named on every line of the log."""
    universe_id: str = "default"
    """Named on every line of the log."""
    authority_url: str | None = None
    """``http(s)://host[:port]``: a tenant is ready while its authority can be reached (spec-4 §10.1)."""
    authority_ca: Path | None = None
    """A PEM file, if the authority's certificate is not one that this machine trusts."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    gating: bool = True
    """Whether a writer needs a cap token; without it anybody may write (H20)."""
    issuers: tuple[str, ...] = ()
    """Public keys in hex, beside the admin key made with the hub (H18)."""
    streams: tuple[str, ...] = ()
    """Names the hub may know (H4)."""
    clock: str = "wall"
    """The machine's, or what another package brings by entry point."""
    workers: int = 2
    """Threads that verify; under load each has a process."""
    max_waiting: int = 8_192
    """Messages in verification and sequencing before the hub answers 503 (OP0.4)."""
    max_page_items: int = 1_000
    """The longest page that a reader gets."""
    listen: Listen = Listen()
    tls: Tls | None = None
    checkpoints: Checkpoints = Checkpoints()
    anchor: AnchorSettings = AnchorSettings()
    retention: Retention = Retention()
    pow: Pow = Pow()
    network: Network = Network()
    client_keys: ClientKeys | None = None
    policy: Policy = Policy()
    level: Literal["core", "federated", "hardened", "meta"] = "core"
    """What of its realm's admin streams the hub enforces (spec-2 §8)."""
    realm: RealmSettings | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    """If given, must be the data directory's own (§14.1)."""

    def __post_init__(self) -> None:
        for key, (least, most) in BOUNDS.items():
            if not least <= (value := attrgetter(key)(self)) <= most:
                raise ConfigError(f"{key}: want {least} to {most}, found {value}")
        for position, issuer in enumerate(self.issuers):
            _checked(f"issuers[{position}]", lambda issuer=issuer: VerifyKey.from_hex(issuer))
        for key, ranges in (("allow", self.network.allow), ("deny", self.network.deny)):
            for position, text in enumerate(ranges):
                _checked(f"network.{key}[{position}]", lambda text=text: ip_network(text))
        for text in self.retention.labels:
            _checked(f"retention.labels.{text}", lambda text=text: Label.from_hex(text))
        for name in self.limits:
            if name not in MAXIMA:
                raise ConfigError(f"limits.{name}: unknown; the registry has {', '.join(MAXIMA)}")
        _checked("limits", lambda: DEFAULT_LIMITS.lowered(self.limits))
        if self.authority_url is not None:
            _check_authority(self.authority_url)
        _check_ca("authority_ca", self.authority_ca, "authority_url", self.authority_url)
        if not self.listen.host:
            raise ConfigError('listen.host: empty; "0.0.0.0" or "::" listens on every address')
        if self.level != "core":
            self._check_realm()
        if self.pow.max_difficulty and self.pow.max_difficulty < self.pow.difficulty:
            raise ConfigError("pow.max_difficulty: below pow.difficulty")

    def _check_realm(self) -> None:
        if self.realm is None:
            raise ConfigError(f"level: {self.level} needs a realm to follow: set realm.id and realm.key")
        if self.realm.url is None and self.tls is not None:
            raise ConfigError("realm.url: under TLS, name this hub's own address, with realm.pinned")
        if self.policy.name is not None:
            raise ConfigError("policy.name: a level brings its own policy; leave one of the two out")

    @property
    def stream_ids(self) -> tuple[StreamId, ...]:
        return tuple(stream_id(name) for name in self.streams)


MANY = 2**31 - 1
BOUNDS: Mapping[str, tuple[int, int]] = {
    "workers": (1, 256),
    "max_waiting": (1, MANY),
    "max_page_items": (1, 65_536),
    "listen.port": (0, 65_535),
    "listen.max_connections": (1, MANY),
    "listen.backlog": (1, MANY),
    "listen.request_timeout_sec": (1, MANY),
    "listen.follower_timeout_sec": (1, MANY),
    "checkpoints.every_entries": (1, MANY),
    "pow.difficulty": (0, MAX_DIFFICULTY),
    "pow.max_difficulty": (0, MAX_DIFFICULTY),
}
"""Numbers that must lie within bounds; of all others any that is not negative will do."""


def _checked(key: str, parse: Any) -> None:
    try:
        parse()
    except (ConfigError, DecodeError, ValueError) as exc:
        raise ConfigError(f"{key}: {exc}") from None


def _check_authority(url: str) -> None:
    """What is wrong is told without the text: it may hold a password."""
    want = "authority_url: want http://host[:port] or https://host[:port]"
    try:
        found = urlsplit(url)
        named = bool(found.hostname) and found.port != 0
    except ValueError:
        raise ConfigError(f"{want}; its host or port is not one") from None
    if "@" in found.netloc:
        raise ConfigError(f"{want}; leave user and password out: /healthz asks for none")
    plain = url.isascii() and url.isprintable() and " " not in url
    if not (plain and named and found.scheme in {"http", "https"}):
        raise ConfigError(want)
    if found.path not in {"", "/"} or "?" in url or "#" in url:
        raise ConfigError(f"{want}, and nothing behind it")


def load(path: Path | None, overrides: Mapping[str, Any]) -> HubConfig:
    """The file's settings with ``overrides`` (dotted keys) on top."""
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
"""Names that spec-4 §5.3 uses in its ConfigMaps."""


def _set(settings: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        if settings.get(key) is None:  # also a section of which every line is commented out
            settings[key] = {}
        settings = settings[key]
        if not isinstance(settings, dict):
            raise ConfigError(f"{key}: want a mapping, found {kind_name(settings)}")
    settings[keys[-1]] = value


ENVIRONMENT: Mapping[str, str] = {
    "VEEN_ROLE": "role",
    "VEEN_TENANT_ID": "tenant_id",
    "VEEN_UNIVERSE_ID": "universe_id",
    "VEEN_LOG_LEVEL": "log_level",
    "VEEN_DATA_DIR": "data_dir",
    "VEEN_KEYS_DIR": "keys_dir",
    "VEEN_AUTHORITY_URL": "authority_url",
    "VEEN_LISTEN_HOST": "listen.host",
    "VEEN_LISTEN_PORT": "listen.port",
}


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Overrides that ``VEEN_*`` variables ask for; numbers are read as numbers."""
    found: dict[str, Any] = {}
    for variable, key in ENVIRONMENT.items():
        if value := environment.get(variable):
            found[key] = int(value) if key == "listen.port" and value.isdecimal() else value
    return found
