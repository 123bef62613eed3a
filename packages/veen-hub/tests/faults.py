"""One fault per row of the admission table, made so that any two that can be wrong at once may be combined.

A ``Scene`` is a hub and one message to it. Each fault says what it changes: the hub's settings, the token,
what happened before, the message, the bytes or the headers. Faults of later rows do not disturb those of
earlier ones, so that a scene with two of them shows which row is looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from veen_core import pow as proof_of_work
from veen_core import rejection
from veen_core.cap import CapToken, Rate
from veen_core.ids import AuthRef, Label, UnixTime
from veen_core.limits import Limits
from veen_core.profile import PROFILES
from veen_core.rejection import Rejection
from veen_hub.admission.policy import AdmissionQuestion, GrantedToken

from .conftest import StartHub
from .people import BORN, Writer, envelope, signing_key
from .serving import Answer, RunningHub, SetClock

LIMITS = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536)
WORK = 4
NOTARY = signing_key("notary")


class SetPolicy:
    """An ``AdmissionPolicy`` that says what the test wants."""

    def __init__(self) -> None:
        self.says_not_primary: str | None = None
        self.says_revoked: str | None = None
        self.says_stale: str | None = None
        self.says_pad_block = 0
        self.says_rate: Rate | None = None
        self.says_retention: dict[Label, int] = {}
        self.asked: list[AdmissionQuestion] = []

    def not_primary(self, question: AdmissionQuestion) -> str | None:
        self.asked.append(question)
        return self.says_not_primary

    def revoked(self, question: AdmissionQuestion) -> str | None:  # noqa: ARG002
        return self.says_revoked

    def pad_block(self, question: AdmissionQuestion) -> int:  # noqa: ARG002
        return self.says_pad_block

    def rate(self, question: AdmissionQuestion) -> Rate | None:  # noqa: ARG002
        return self.says_rate

    def retention(self) -> dict[Label, int]:
        return self.says_retention

    def enforces(self) -> tuple[str, ...]:
        return ("what the test wants",)

    def stale(self, now: UnixTime) -> str | None:  # noqa: ARG002
        return self.says_stale

    def describe(self) -> dict[str, str]:
        return {"level": "hardened", "lag_sec": "7"}


class GrantingPolicy(SetPolicy):
    """A policy that knows the tokens that it was given as grants."""

    def __init__(self) -> None:
        super().__init__()
        self._granted: dict[AuthRef, GrantedToken] = {}

    def grant(self, token: CapToken, issued_at: int) -> AuthRef:
        self._granted[token.auth_ref] = (token, UnixTime(issued_at))
        return token.auth_ref

    def granted(self, auth_ref: AuthRef, hub_ts: UnixTime) -> GrantedToken | None:
        del hub_ts
        return self._granted.get(auth_ref)


@dataclass(slots=True)
class Scene:
    """A hub under the rotating profile, gated; and one message to it."""

    start_hub: StartHub
    settings: dict[str, Any] = field(default_factory=dict)
    later_settings: dict[str, Any] = field(default_factory=dict)
    """Of a restart just before the message."""
    policy: SetPolicy = field(default_factory=SetPolicy)
    clock: SetClock = field(default_factory=SetClock)
    token: dict[str, Any] = field(default_factory=dict)
    earlier: int = 0
    """Messages that were accepted before, under a token without bounds."""
    passes: int = 0
    """Seconds between those and the message."""
    last: list[Callable[[Scene], None]] = field(default_factory=list)
    """What happens just before the message."""
    fields: dict[str, Any] = field(default_factory=dict)
    without_token: bool = False
    bytes: Callable[[bytes], bytes] = envelope
    with_work: bool = True

    def play(self) -> Answer:
        hub = self._start(self.settings)
        alice = Writer("alice", hub.hub_id, hub.profile)
        alice.auth_ref = hub.authorize(alice.token(ttl=10_000_000)).auth_ref
        for _ in range(self.earlier):
            wire = alice.next()
            hub.accept(wire, **self._work(hub, wire))
        alice.auth_ref = hub.authorize(self._token(alice)).auth_ref
        self.clock.time += self.passes
        if self.later_settings:
            hub.stop()
            hub = self._start(self.settings | self.later_settings)
        for happens in self.last:
            happens(self)
        if self.without_token:
            alice.auth_ref = None
        wire = alice.message(self.fields.pop("client_seq", alice.seq + 1), **self.fields)
        headers = self._work(hub, wire) if self.with_work else {}
        return hub.post("/v1/submit", self.bytes(wire), **headers)

    def _start(self, settings: dict[str, Any]) -> RunningHub:
        return self.start_hub(
            profile=PROFILES["rotating"], limits=LIMITS, clock=self.clock, policy=self.policy, **settings
        )

    def _token(self, alice: Writer) -> CapToken:
        return alice.token(**{"ttl": 1_000_000, **self.token})

    def _work(self, hub: RunningHub, wire: bytes) -> dict[str, str]:
        if "pow__difficulty" not in self.settings:
            return {}
        challenge = proof_of_work.challenge(hub.status().pow_salt, wire)
        return {"VEEN_PoW": proof_of_work.solve(challenge, WORK).encode().hex()}


Fault = Callable[[Scene], None]


def too_large(scene: Scene) -> None:
    inner = scene.bytes
    scene.bytes = lambda wire: inner(wire) + bytes(LIMITS.max_msg_bytes)


def no_work(scene: Scene) -> None:
    scene.settings["pow__difficulty"] = WORK
    scene.with_work = False


def not_canonical(scene: Scene) -> None:
    inner = scene.bytes
    scene.bytes = lambda wire: inner(wire + b"\x00")


def short_ciphertext(scene: Scene) -> None:
    scene.fields["ciphertext"] = b"too short"


def other_version(scene: Scene) -> None:
    scene.fields["ver"] = 2


def other_profile(scene: Scene) -> None:
    scene.fields["profile_id"] = bytes(32)


def other_ct_hash(scene: Scene) -> None:
    scene.fields["ct_hash"] = bytes(32)


def bad_signature(scene: Scene) -> None:
    scene.fields["sig"] = bytes(64)


def not_primary(scene: Scene) -> None:
    scene.last.append(lambda s: setattr(s.policy, "says_not_primary", "the primary is elsewhere"))


def no_token(scene: Scene) -> None:
    scene.without_token = True


def issuer_no_longer_accepted(scene: Scene) -> None:
    scene.token["issuer"] = NOTARY
    scene.settings["issuers"] = [NOTARY.public.hex()]
    scene.later_settings["issuers"] = []


def somebody_elses_token(scene: Scene) -> None:
    scene.token["subject"] = signing_key("bob")


def revoked(scene: Scene) -> None:
    scene.last.append(lambda s: setattr(s.policy, "says_revoked", "the client_id was revoked"))


def beyond_bounds(scene: Scene) -> None:
    scene.settings["client_keys__max_msgs_per_client_id_per_label"] = 1
    scene.earlier = max(scene.earlier, 1)


def out_of_scope(scene: Scene) -> None:
    scene.token["streams"] = ["elsewhere"]


def expired(scene: Scene) -> None:
    scene.token["ttl"] = 5
    scene.passes = max(scene.passes, 6)


def not_padded(scene: Scene) -> None:
    """No ciphertext is as long as a prime this large."""
    scene.last.append(lambda s: setattr(s.policy, "says_pad_block", 2_147_483_647))


def no_rate_left(scene: Scene) -> None:
    scene.token["rate"] = Rate(per_sec=1, burst=0)


def ahead_of_the_stream(scene: Scene) -> None:
    scene.fields["prev_ack"] = 99


def again(scene: Scene) -> None:
    """``client_seq`` 1, which was accepted: so it is not the next one either."""
    scene.earlier = max(scene.earlier, 1)
    scene.fields["client_seq"] = 1


def not_the_next(scene: Scene) -> None:
    scene.fields.setdefault("client_seq", 7)


def old_epoch(scene: Scene) -> None:
    scene.passes = max(scene.passes, 5 * PROFILES["rotating"].epoch_sec)


FAULTS: dict[Rejection, Fault] = {
    rejection.SIZE_PREFILTER: too_large,
    rejection.PREFILTER_REJECT: no_work,
    rejection.CBOR_INVALID: not_canonical,
    rejection.FIELD_SIZE: short_ciphertext,
    rejection.VERSION: other_version,
    rejection.PROFILE: other_profile,
    rejection.CT_HASH: other_ct_hash,
    rejection.SIG_INVALID: bad_signature,
    rejection.NOT_PRIMARY: not_primary,
    rejection.CAP_MISSING: no_token,
    rejection.CAP_ISSUER: issuer_no_longer_accepted,
    rejection.AUTH_REF: somebody_elses_token,
    rejection.REVOKED: revoked,
    rejection.CLIENT_BOUNDS: beyond_bounds,
    rejection.CAP_SCOPE: out_of_scope,
    rejection.CAP_TTL: expired,
    rejection.PADDING: not_padded,
    rejection.CAP_RATE: no_rate_left,
    rejection.PREV_ACK: ahead_of_the_stream,
    rejection.DUPLICATE: again,
    rejection.CLIENT_SEQ: not_the_next,
    rejection.EPOCH: old_epoch,
}
"""In the table's order. ATT_ROOT and CAP_INVALID are not faults of a message: see ``test_admission``."""

OF_A_TOKEN = {
    rejection.CAP_ISSUER,
    rejection.AUTH_REF,
    rejection.CAP_SCOPE,
    rejection.CAP_TTL,
    rejection.CAP_RATE,
}


def can_both_be_wrong(a: Rejection, b: Rejection) -> bool:
    """A message without a token has none that is wrong, nor an epoch that the hub could know (H4)."""
    if rejection.CAP_MISSING in (a, b):
        other = b if a is rejection.CAP_MISSING else a
        return other not in OF_A_TOKEN
    return True


def play(start_hub: StartHub, rows: Iterable[Rejection]) -> Answer:
    scene = Scene(start_hub)
    for row in rows:
        FAULTS[row](scene)
    return scene.play()


assert BORN % PROFILES["rotating"].epoch_sec == 0
