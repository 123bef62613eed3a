"""query.yaml: every setting of the Query API's service, declared once, with its type, default and bounds.

    hub:
      url: https://hub.example:8080
      trust: <hub_id>
    client: identity              # folders and files are relative to this file
    tokens: [query.cap]           # for record/query/requests, results and audit/access
    readers: [reader]             # whose keys open the streams
    streams:
      - record/app/http
    principals:
      - name: auditor
        identity: <client_id of the auditor, in hex>
        tokens: [<hash that `veen query token` prints>]
        streams: ["record/app/*"]

A service without a token or certificate of a principal does not start (query-api-spec 7.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

from veen_cli.query.event_sources import BridgedHub, EventSources, QueriedStream, read_identity
from veen_core.errors import ConfigError
from veen_core.ids import ClientId, FixedBytes, HubId
from veen_core.keys import DhKey
from veen_hub import yaml_file
from veen_hub.ops.config import INT_MAX
from veen_hub.ops.config.schema import build
from veen_overlays.live.query_service.principals import (
    Authenticator,
    PrincipalLimits,
    ServicePrincipal,
    check_pattern,
)


class BearerTokenHash(FixedBytes):
    """SHA-256 of a bearer token."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """The hub whose streams are queried and that takes the records."""

    url: str
    """Address of the hub."""
    trust: HubId
    """Its hub_id in hex."""
    ca: Path | None = None
    """PEM file of the authority that signed the hub's certificate."""
    cert: Path | None = None
    """PEM file of the client certificate to present to the hub."""
    cert_key: Path | None = None
    """PEM file of that certificate's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginSettings:
    """A hub of another zone, whose events a bridge brought to this hub."""

    identity: Path
    """The hub's identity, as `veen hub keys --out` writes it."""
    epoch_sec: int = 0
    """Length of the hub's epochs, by its profile; 0 without epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalSettings:
    """A user of the service."""

    name: str
    identity: ClientId
    """The identity that the principal's accesses are recorded under: its client_id in hex."""
    tokens: tuple[BearerTokenHash, ...] = ()
    """Hashes of bearer tokens, as `veen query token` prints them."""
    certificates: tuple[str, ...] = ()
    """Subjects of client certificates, such as `organizationName=Example,commonName=auditor`; in a value, a
    comma, an equals sign and a backslash have a backslash in front."""
    streams: tuple[str, ...] = ()
    """Streams that the principal may query: names, or patterns such as `record/app/*`."""
    results: Literal["own", "all"] = "own"
    """Whose results the principal may read."""
    limits: dict[str, int] = field(default_factory=dict)
    """Limits of this principal; those not given are the service's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """An address and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8085
    """Port to listen on; 0 takes a free one."""
    max_connections: int = 256
    """Open connections, TLS handshakes included. A further connection is answered with 503 and closed."""
    backlog: int = 128
    """Connections that wait in the operating system's queue to be accepted."""
    slow_client_sec: int = 10
    """A client that does not read its answers for this long is dropped."""
    without_tls: bool = False
    """Listen beyond this machine without TLS: only behind a proxy that ends TLS, because clients send
    tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The address of /readyz and /metrics."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8086
    """Port to listen on; 0 takes a free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTls:
    """TLS 1.2 or later, AEAD suites only."""

    cert: Path
    """PEM file with the certificate chain."""
    key: Path
    """PEM file with the certificate's private key."""
    client_ca: Path | None = None
    """PEM file of the authorities whose client certificates are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """How queries are run and their results kept."""

    keep_sec: int = 86_400
    """How long rows and evidence are kept; descriptor, digest and receipts are kept for ever."""
    max_running: int = 2
    """Queries that run at the same time, of all principals together."""
    drain_sec: int = 20
    """How long running queries may take to finish when the service stops; others run again at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """All settings of the service; paths are absolute after ``load``."""

    hub: HubSettings
    client: Path
    """Folder of the service's identity, which signs the records."""
    streams: tuple[QueriedStream, ...]
    """Streams that queries may name: a name, or `name` and `held_in` for a stream that a bridge imported."""
    principals: tuple[PrincipalSettings, ...]
    tokens: tuple[Path, ...] = ()
    """Cap tokens for the three record/query streams."""
    readers: tuple[Path, ...] = ()
    """Identity folders whose keys open the streams; records are sealed to the first."""
    origins: tuple[OriginSettings, ...] = ()
    """Hubs of other zones whose imported events are queried."""
    resealed: bool = False
    """Whether imported events were resealed; bridge/offline/log then names their origins."""
    state: Path = Path("query-state")
    """Folder for the view, the jobs and the results; it contains opened events."""
    listen: Listen = Listen()
    probes: Probes = Probes()
    tls: ServiceTls | None = None
    limits: PrincipalLimits = field(default_factory=PrincipalLimits)
    results: Results = Results()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log events to write."""

    def __post_init__(self) -> None:
        for key in BOUNDS:
            _check_bounds(key, attrgetter(key)(self), key)
        if not self.streams:
            raise ConfigError("streams: empty; name the streams that may be queried")
        names = [stream.name for stream in self.streams]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"streams: {', '.join(sorted(twice))} is listed twice")
        if self.tls is None and not self.listen.without_tls and not _is_loopback(self.listen.host):
            raise ConfigError(
                f"listen.host: {self.listen.host} is reachable from elsewhere, and tls is not configured",
                action="configure tls, or listen on 127.0.0.1 behind a TLS proxy",
            )

    def sources(self, keys: tuple[DhKey, ...]) -> EventSources:
        """Return what the view reads; reads the identities of origin hubs."""
        return EventSources(
            streams=self.streams,
            keys=keys,
            origins=tuple(
                BridgedHub(identity=read_identity(each.identity), epoch_sec=each.epoch_sec)
                for each in self.origins
            ),
            resealed=self.resealed,
        )

    def authenticator(self) -> Authenticator:
        """Return the authenticator of the principals; refuse settings with which it cannot work."""
        found = Authenticator(self._principal(each, n) for n, each in enumerate(self.principals))
        if found.takes_certificates and (self.tls is None or self.tls.client_ca is None):
            raise ConfigError("principals: certificates need tls.client_ca; set it, or use tokens")
        return found

    def _principal(self, settings: PrincipalSettings, number: int) -> ServicePrincipal:
        key = f"principals[{number}]"
        for pattern in settings.streams:
            check_pattern(pattern, f"{key}.streams")
        limits = replace(self.limits)
        if settings.limits:
            own = build(PrincipalLimits, settings.limits, f"{key}.limits")
            given = {name: getattr(own, name) for name in settings.limits}
            for name, value in given.items():
                _check_bounds(f"limits.{name}", value, f"{key}.limits.{name}")
            limits = replace(self.limits, **given)
        return ServicePrincipal(
            name=settings.name,
            identity=settings.identity,
            streams=settings.streams,
            results=settings.results,
            limits=limits,
            token_hashes=tuple(bytes(each) for each in settings.tokens),
            subjects=settings.certificates,
        )


BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "listen.port": (0, 65_535),
    "listen.max_connections": (1, INT_MAX),
    "listen.backlog": (1, INT_MAX),
    "listen.slow_client_sec": (1, INT_MAX),
    "probes.port": (0, 65_535),
    "limits.max_rows": (1, 1_000_000),
    "limits.max_result_bytes": (1_024, 2**30),
    "limits.max_seconds": (1, 86_400),
    "limits.max_running": (1, 64),
    "limits.max_pending": (1, 10_000),
    "limits.max_page_rows": (1, 10_000),
    "results.keep_sec": (1, INT_MAX),
    "results.max_running": (1, 64),
    "results.drain_sec": (0, 3_600),
}
"""Smallest and largest value of a setting; those of ``limits`` are also those of a principal's limits."""


def _check_bounds(setting: str, value: int, key: str) -> None:
    least, most = BOUNDS[setting]
    if not least <= value <= most:
        raise ConfigError(f"{key}: {value} is not between {least} and {most}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load(path: Path, overrides: Mapping[str, Mapping[str, Any]]) -> ServiceConfig:
    """Load the file; ``overrides`` are settings by section, which win over the file's."""
    settings = yaml_file.read(path)
    for section, values in overrides.items():
        given = settings.get(section) or {}
        if values and isinstance(given, Mapping):  # else the schema refuses the section
            settings[section] = {**given, **values}
    listed = settings.get("streams")
    if isinstance(listed, list):  # a plain name is short for {name: …}
        settings["streams"] = [{"name": each} if isinstance(each, str) else each for each in listed]
    try:
        made = build(ServiceConfig, settings, "")
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc.message}", action=exc.action) from None
    assert isinstance(made, ServiceConfig)
    return _below(made, path.resolve().parent)


def _below(config: ServiceConfig, folder: Path) -> ServiceConfig:
    """Make the paths of a configuration absolute."""

    def at(path: Path | None) -> Path | None:
        return None if path is None else folder / path.expanduser()

    def these(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(folder / each.expanduser() for each in paths)

    hub = replace(
        config.hub, ca=at(config.hub.ca), cert=at(config.hub.cert), cert_key=at(config.hub.cert_key)
    )
    tls = config.tls
    if tls is not None:
        tls = replace(
            tls,
            cert=folder / tls.cert.expanduser(),
            key=folder / tls.key.expanduser(),
            client_ca=at(tls.client_ca),
        )
    return replace(
        config,
        hub=hub,
        tls=tls,
        client=folder / config.client.expanduser(),
        state=folder / config.state.expanduser(),
        tokens=these(config.tokens),
        readers=these(config.readers),
        origins=tuple(replace(each, identity=folder / each.identity.expanduser()) for each in config.origins),
    )
