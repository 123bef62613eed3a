"""The witness policy: which logs count, and how many witnesses must have cosigned (C2SP tlog-policy).

    log veen.hub/5f…+1a2b3c4d+AbC… https://hub.example
    witness alice alice.example/w+…  https://alice.example
    witness bob   bob.example/w+…
    group both all alice bob
    quorum both

One line is ours, in the form of a comment so that other readers of the format pass over it:
``#veen max-age SECONDS`` says how old the newest cosignatures of a quorum may be. Any other line whose first
word is ``#veen`` is refused, so that a misspelt setting is not taken for a comment; write ``# veen`` for a
comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import DecodeError, QuorumError, SignatureError
from veen_core.ids import UnixTime
from veen_core.tlog.note import COSIGNATURE, ED25519, NoteKey, cosigned_at, parse_key, verified_signatures
from veen_core.tlog.tree_head import SignedHead

NONE: Final = b"none"
"""Name of the quorum that needs no cosignature."""
DEFAULT_MAX_AGE_SEC: Final = 300
"""How old the cosignatures of a live hub may be, if the policy does not say."""
MAX_POLICY_BYTES: Final = 1_048_576
POLICY_ACTION: Final = (
    "a policy has lines log, witness, group, quorum and #veen max-age; see docs/concepts/hub-log.md"
)
"""The next step after an error in a policy."""
MAX_NUMBER: Final = 999_999_999
"""Largest threshold and largest max-age."""
MAX_SHOWN_NAMES: Final = 8
"""Names that an error lists."""
_ALLOWED: Final = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_BLANK: Final = re.compile(rb"[ \t]+")
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,8}")
_WRONG_KEY: Final = {
    COSIGNATURE: "this is the key of a log; a witness line needs the key that `veen witness status` prints",
    ED25519: "this is the key of a witness; a log line needs the key that `veen hub keys --note` prints",
}
"""Error of a line whose key is of the other kind, by the kind that the line needs."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log that the policy accepts. The name of its key is the log's origin."""

    key: NoteKey
    url: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyWitness:
    """A witness whose cosignatures count."""

    name: bytes
    key: NoteKey
    url: str | None = None


@dataclass(frozen=True, slots=True)
class WitnessGroup:
    """A group has witnessed a checkpoint if at least ``threshold`` of its members have."""

    name: bytes
    threshold: int
    members: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Cosigned:
    """The result of a check: which witnesses cosigned, and since when a quorum of them has."""

    witnesses: tuple[PolicyWitness, ...]
    quorum_at: UnixTime | None
    """Time from which on the cosignatures make a quorum; None if the policy needs none."""


@dataclass(frozen=True, slots=True)
class WitnessPolicy:
    """A parsed policy."""

    quorum: bytes
    logs: tuple[Log, ...] = ()
    witnesses: tuple[PolicyWitness, ...] = ()
    groups: tuple[WitnessGroup, ...] = ()
    max_age_sec: int = DEFAULT_MAX_AGE_SEC

    def is_quorum(self, cosigned: Collection[bytes]) -> bool:
        """Return whether the witnesses with these names are enough."""
        if self.quorum == NONE:
            return True
        done = set(cosigned)
        for group in self.groups:  # a group names only what was defined before it
            if sum(member in done for member in group.members) >= group.threshold:
                done.add(group.name)
        return self.quorum in done

    def check(self, signed: SignedHead, *, log_keys: Iterable[NoteKey] = ()) -> Cosigned:
        """Verify a checkpoint: signed by a log of the policy and by a quorum.

        ``log_keys`` are further keys of the same log, which the caller knows from elsewhere, such as all keys
        of a hub's identity. A policy that names logs must name one of them. Raise ``SignatureError`` or
        ``QuorumError``.
        """
        if not verified_signatures(signed.note, self._keys_of(signed.head.origin, [*log_keys])):
            raise SignatureError(
                f"the checkpoint of {signed.head.origin} has no signature of a log that the policy names "
                "(C2SP tlog-policy)"
            )
        cosignatures = verified_signatures(signed.note, (witness.key for witness in self.witnesses))
        times = {
            witness: cosigned_at(cosignatures[witness.key].signature)
            for witness in self.witnesses
            if witness.key in cosignatures
        }
        return Cosigned(tuple(times), self._quorum_at(signed, times))

    def _keys_of(self, origin: str, log_keys: list[NoteKey]) -> list[NoteKey]:
        """Return the keys that may have signed a checkpoint of this log."""
        named = [log.key for log in self.logs if log.key.name == origin]
        known = [key for key in log_keys if key.name == origin]
        if self.logs and not (set(known) & set(named) if log_keys else named):
            raise SignatureError(f"the policy does not name the log {origin} (C2SP tlog-policy)")
        return known or named

    def check_age(self, cosigned: Cosigned, now: UnixTime) -> None:
        """Raise ``QuorumError`` unless a quorum cosigned within ``max_age_sec`` of ``now``."""
        if cosigned.quorum_at is None:
            return
        age = now - cosigned.quorum_at
        if age > self.max_age_sec:
            raise QuorumError(
                f"the newest quorum of cosignatures is {age} s old, at most {self.max_age_sec} s are allowed "
                "(#veen max-age of the policy)",
                action="check that the hub reaches its witnesses",
            )
        if -age > self.max_age_sec:
            raise QuorumError(
                f"the newest quorum of cosignatures was made {-age} s in the future "
                "(#veen max-age of the policy)",
                action="check the clocks of this machine and of the witnesses",
            )

    def _quorum_at(self, signed: SignedHead, times: dict[PolicyWitness, UnixTime]) -> UnixTime | None:
        if self.quorum == NONE:
            return None
        names: set[bytes] = set()
        for witness, time in sorted(times.items(), key=lambda item: item[1], reverse=True):
            names.add(witness.name)
            if self.is_quorum(names):
                return time  # the newest time such that a quorum cosigned at it or later
        raise QuorumError(
            f"the checkpoint of {signed.head.origin} at size {signed.head.size} has the cosignatures of "
            f"{len(times)} of {len(self.witnesses)} witnesses, which is no quorum (C2SP tlog-policy)"
        )


@dataclass
class _Parser:
    logs: list[Log] = field(default_factory=list)
    witnesses: list[PolicyWitness] = field(default_factory=list)
    groups: list[WitnessGroup] = field(default_factory=list)
    quorum: bytes | None = None
    max_age_sec: int | None = None
    names: dict[bytes, None] = field(default_factory=dict)
    """Names of witnesses and groups, in the order of their lines."""
    members: set[bytes] = field(default_factory=set)
    publics: set[tuple[int, bytes]] = field(default_factory=set)

    def log(self, key: bytes, url: bytes | None = None) -> None:
        self.logs.append(Log(self._key(key, ED25519), _text(url)))

    def witness(self, name: bytes, key: bytes, url: bytes | None = None) -> None:
        self._define(name)
        self.witnesses.append(PolicyWitness(name, self._key(key, COSIGNATURE), _text(url)))

    def group(self, name: bytes, threshold: bytes, *members: bytes) -> None:
        if not members:
            raise DecodeError("has a group without members")
        for member in members:
            if member not in self.names:
                raise self._undefined(member)
            if member in self.members:
                raise DecodeError(f"lists {_shown(member)} as a member twice")
            self.members.add(member)
        self._define(name)
        if threshold not in (b"any", b"all") and not _NUMBER.fullmatch(threshold):
            raise DecodeError(f"{_shown(threshold)} is not any, all or an integer from 1 to {MAX_NUMBER}")
        count = {b"any": 1, b"all": len(members)}.get(threshold) or int(threshold)
        if count > len(members):
            raise DecodeError(f"wants {count} of {len(members)} members")
        self.groups.append(WitnessGroup(name, count, members))

    def set_quorum(self, name: bytes) -> None:
        if self.quorum is not None:
            raise DecodeError("has two quorum lines")
        if name != NONE and name not in self.names:
            raise self._undefined(name)
        self.quorum = name

    def max_age(self, seconds: bytes) -> None:
        if self.max_age_sec is not None:
            raise DecodeError("has two max-age lines")
        if not _NUMBER.fullmatch(seconds):
            raise DecodeError(f"{_shown(seconds)} is not an integer from 1 to {MAX_NUMBER} (seconds)")
        self.max_age_sec = int(seconds)

    def _key(self, text: bytes, kind: int) -> NoteKey:
        """Parse a key; the same public key is refused twice, whatever its name (C2SP tlog-policy)."""
        try:
            key = parse_key(text.decode())
        except UnicodeDecodeError:
            raise DecodeError("has a key name that is not UTF-8") from None
        if key.kind != kind:
            raise DecodeError(_WRONG_KEY[kind])
        if (kind, key.public) in self.publics:
            raise DecodeError(f"names the same {'log' if kind == ED25519 else 'witness'} key twice")
        self.publics.add((kind, key.public))
        return key

    def _define(self, name: bytes) -> None:
        if name == NONE:
            raise DecodeError(
                f"defines {_shown(name)}, which is reserved for the quorum that needs no witness"
            )
        if name in self.names:
            raise DecodeError(f"defines {_shown(name)} twice")
        self.names[name] = None

    def _undefined(self, name: bytes) -> DecodeError:
        names = list(self.names)
        shown = ", ".join(_plain(each) for each in names[:MAX_SHOWN_NAMES]) or "nothing"
        more = ", …" if len(names) > MAX_SHOWN_NAMES else ""
        return DecodeError(f"names {_shown(name)} before it is defined; defined so far: {shown}{more}")


def parse_policy(data: bytes) -> WitnessPolicy:
    """Parse a policy file; a ``DecodeError`` names the line."""
    if len(data) > MAX_POLICY_BYTES:
        raise DecodeError(f"has more than {MAX_POLICY_BYTES} bytes", where=_where(None))
    if not _ALLOWED.fullmatch(data):
        raise DecodeError("contains a control character other than tab and newline", where=_where(None))
    parser = _Parser()
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            _parse_line(parser, line.strip(b" \t"))
        except DecodeError as exc:
            raise exc.within(_where(number)) from None
    if parser.quorum is None:
        raise DecodeError("has no quorum line", where=_where(None))
    return WitnessPolicy(
        parser.quorum,
        tuple(parser.logs),
        tuple(parser.witnesses),
        tuple(parser.groups),
        DEFAULT_MAX_AGE_SEC if parser.max_age_sec is None else parser.max_age_sec,
    )


def _parse_line(parser: _Parser, line: bytes) -> None:
    words = _BLANK.split(line)
    if not line or (line.startswith(b"#") and words[0] != b"#veen"):
        return
    match words:
        case [b"log", key]:
            parser.log(key)
        case [b"log", key, url]:
            parser.log(key, url)
        case [b"witness", name, key]:
            parser.witness(name, key)
        case [b"witness", name, key, url]:
            parser.witness(name, key, url)
        case [b"group", name, threshold, *members]:
            parser.group(name, threshold, *members)
        case [b"quorum", name]:
            parser.set_quorum(name)
        case [b"#veen", b"max-age", seconds]:
            parser.max_age(seconds)
        case _:
            raise DecodeError(f"{_shown(line)} is not a line of a policy")


def _text(url: bytes | None) -> str | None:
    return url.decode(errors="surrogateescape") if url is not None else None


def _shown(name: bytes) -> str:
    return repr(_plain(name))


def _plain(name: bytes) -> str:
    return name[:60].decode(errors="replace")


def _where(line: int | None) -> str:
    return f"policy (C2SP tlog-policy), line {line}" if line else "policy (C2SP tlog-policy)"
