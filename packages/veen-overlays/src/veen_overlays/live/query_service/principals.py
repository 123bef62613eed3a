"""Principals: who may ask, for which streams, and how much (query-api-spec 7.1).

A principal authenticates with a bearer token or with a client certificate. The service knows a token by its
SHA-256 hash only. The hash needs no salt and no slow function, because no attacker can guess a random token.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from veen_core.errors import ConfigError
from veen_core.ids import ClientId
from veen_overlays.query.errors import QueryError, QueryErrorCode

TOKEN_PREFIX: Final = "veenq_"  # noqa: S105 - a mark by which scanners find tokens in files, not a token
TOKEN_BYTES: Final = 32
MAX_AUTHORIZATION_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalLimits:
    """Bounds on one principal's queries."""

    max_rows: int = 100_000
    """Rows of one result."""
    max_result_bytes: int = 64 * 1_048_576
    """Bytes of the rows of one result as canonical JSON."""
    max_seconds: int = 60
    """Time that one query may run."""
    max_running: int = 2
    """Queries of one principal that run at the same time."""
    max_pending: int = 32
    """Queries of one principal that are accepted and not finished."""
    max_page_rows: int = 1_000
    """Rows of one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrincipal:
    """One user of the service, and the VEEN identity that its queries and accesses are recorded under."""

    name: str
    identity: ClientId
    streams: tuple[str, ...]
    """Names of streams, or patterns: ``*`` matches all streams, ``record/app/*`` all below a name."""
    results: Literal["own", "all"] = "own"
    """Whose results the principal may read."""
    limits: PrincipalLimits = field(default_factory=PrincipalLimits)
    token_hashes: tuple[bytes, ...] = ()
    """SHA-256 of each bearer token."""
    subjects: tuple[str, ...] = ()
    """Subjects of client certificates, as ``subject_text`` writes them."""

    def may_read(self, stream: str) -> bool:
        """Return whether a stream lies in the principal's scope."""
        return any(_matches(pattern, stream) for pattern in self.streams)


def _matches(pattern: str, stream: str) -> bool:
    if pattern.endswith("*"):
        return stream.startswith(pattern[:-1])
    return pattern == stream


def check_pattern(pattern: str, key: str) -> None:
    """Refuse a pattern with ``*`` anywhere but alone or after the last slash."""
    if "*" in pattern and pattern != "*" and not (pattern.endswith("/*") and pattern.count("*") == 1):
        raise ConfigError(f"{key}: {pattern!r}: write a stream's name, or '*', or a name that ends with '/*'")


def new_token() -> str:
    """Return a new random bearer token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def hash_of_token(token: str) -> bytes:
    """Return the hash by which the service knows a token."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def subject_text(certificate: Mapping[str, object] | None) -> str | None:
    """Write the subject of a verified client certificate as ``organizationName=Example,commonName=auditor``.

    The names are OpenSSL's long names, the order is the certificate's. A comma, an equals sign and a
    backslash in a value get a backslash in front: ``Example,commonName=auditor`` must not read as another
    subject. None without a certificate.
    """
    if not certificate:
        return None
    subject = certificate.get("subject")
    if not isinstance(subject, tuple) or not subject:
        return None
    return ",".join(f"{name}={_escaped(value)}" for part in subject for name, value in part)


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in ",=\\" else character for character in value)


class Authenticator:
    """Maps the credentials of a request to its principal; refuses all others (query-api-spec 7.1)."""

    def __init__(self, principals: Iterable[ServicePrincipal]) -> None:
        self.principals: Sequence[ServicePrincipal] = tuple(principals)
        self._by_token: dict[bytes, ServicePrincipal] = {}
        self._by_subject: dict[str, ServicePrincipal] = {}
        names: set[str] = set()
        for principal in self.principals:
            if principal.name in names:
                raise ConfigError(f"principals: {principal.name} is listed twice; merge the two entries")
            names.add(principal.name)
            self._add(principal)
        if not self._by_token and not self._by_subject:
            raise ConfigError(
                "principals: no token and no certificate is configured, so no client could use the service",
                action="run `veen query token` and add its hash to a principal (query-api-spec 7.1)",
            )

    def _add(self, principal: ServicePrincipal) -> None:
        for digest in principal.token_hashes:
            if self._by_token.setdefault(digest, principal) is not principal:
                raise ConfigError(f"principals: {principal.name} and another principal share a token")
        for subject in principal.subjects:
            if self._by_subject.setdefault(subject, principal) is not principal:
                raise ConfigError(f"principals: {principal.name} and another share the subject {subject}")

    @property
    def takes_certificates(self) -> bool:
        """Whether a principal authenticates with a client certificate."""
        return bool(self._by_subject)

    def named(self, name: str) -> ServicePrincipal | None:
        """Return the principal of this name; None if the configuration does not have it any more."""
        return next((each for each in self.principals if each.name == name), None)

    def authenticate(self, authorization: str | None, subject: str | None) -> ServicePrincipal:
        """Return the principal of a request, by its Authorization header, else by its certificate.

        A wrong token is refused even if the certificate is known: the client meant to be another principal.
        """
        if authorization is not None:
            if len(authorization) > MAX_AUTHORIZATION_CHARACTERS:
                raise _unauthorized("the Authorization header is too long")
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise _unauthorized("the Authorization header is not 'Bearer TOKEN'")
            if (found := self._by_token.get(hash_of_token(token.strip()))) is None:
                raise _unauthorized("the token is unknown")
            return found
        if subject is not None:
            if (found := self._by_subject.get(subject)) is None:
                raise _unauthorized("no principal is configured for this client certificate")
            return found
        raise _unauthorized("the request has neither a bearer token nor a client certificate")


def _unauthorized(message: str) -> QueryError:
    return QueryError(
        QueryErrorCode.UNAUTHORIZED, message, action="send 'Authorization: Bearer TOKEN', or a certificate"
    )
