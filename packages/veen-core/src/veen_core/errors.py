"""Every way VEEN says no: one root, families by who can act.

    VeenError
    ├── DecodeError          the bytes are not the object they claim to be     §3.1
    ├── EncodeError          a value has no canonical encoding                 §3.1
    ├── ConfigError          a chosen setting is not allowed                   §3.5, §14.1
    ├── KeystoreError        a keystore does not open                          keystore.py
    ├── OpenError            a ciphertext does not open with this key          §4.2
    ├── VerificationError    well-formed, but does not verify
    │   ├── SignatureError   a signature does not hold                         §4.1, §4.3
    │   ├── ProofError       an inclusion or consistency proof does not hold   §5.4, B11
    │   ├── CheckpointError  a CHECKPOINT breaks a rule of §4.4.1              §4.4.1
    │   ├── CapError         a cap token breaks a rule of §6                   §6
    │   ├── IdentityError    a hub identity does not chain to its anchor       §8.4
    │   ├── InvariantError   an accepted pair breaks an invariant; names it    §7
    │   ├── EvidenceError    equivocation evidence proves nothing              spec-1 §14
    │   └── DivergenceError  the hub contradicts what it signed before         §9
    │       └── UnprovenError  or has not shown that it does not               B11
    ├── StateError           the client is asked for a step it cannot take     §9
    ├── AdmissionError       the hub refuses a MSG; carries a Rejection        §8.2
    └── ApiError             any other refusal on the API; carries a Code      §10.6

No message, argument or attribute of any of them ever holds a secret. All of them survive pickle and
copy with their message, their attributes and their notes: they cross process boundaries.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_core.rejection import Code, Rejection


class VeenError(Exception):
    """Base of every error this project raises on purpose.

    ``action`` is the next step for the user, as an imperative phrase ("run `veen hub fsck`"), or
    None. ``str(error)`` is the message, followed by "; " and the action.
    """

    action: str | None = None

    def __init__(self, *args: object, action: str | None = None) -> None:
        super().__init__(*args)
        if action is not None:
            self.action = action

    @property
    def message(self) -> str:
        """What failed, on which object and why, without the action."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.message}; {self.action}" if self.action else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own calls the class with ``args``, which is the message alone.
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(cls: type[VeenError], args: tuple[Any, ...]) -> VeenError:
    """An error as it was, without the constructor that composed its message."""
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class DecodeFault(enum.IntEnum):
    """What kind of decode error, in the order of §8.2's structural rows: the lowest is reported."""

    CBOR = 0
    SIZE = 1
    VERSION = 2


class DecodeError(VeenError):
    """The bytes are not the object they claim to be (§3.1).

    ``where`` names object, field and section (``"RECEIPT.label §4.3"``); ``found`` says what was
    there instead of what was wanted.
    """

    def __init__(self, found: str, *, fault: DecodeFault = DecodeFault.CBOR, where: str = "") -> None:
        super().__init__(f"{where}: {found}" if where else found)
        self.found = found
        self.fault = fault
        self.where = where

    def within(self, where: str) -> DecodeError:
        """The same fault, seen from the object that contains it."""
        path = f"{where}: {self.where}" if self.where else where
        return DecodeError(self.found, fault=self.fault, where=path)


class EncodeError(VeenError):
    """A value has no canonical encoding (§3.1)."""


class ConfigError(VeenError):
    """A chosen setting is not allowed (§3.5, §14.1)."""


class KeystoreError(VeenError):
    """A keystore does not open: wrong passphrase, damage, or costs out of bounds."""


class OpenError(VeenError):
    """A ciphertext does not open with this key, or is not built as §4.2 says."""


class VerificationError(VeenError):
    """Well-formed, but does not verify."""


class SignatureError(VerificationError):
    """An Ed25519 signature does not hold."""


class ProofError(VerificationError):
    """An inclusion proof (§5.4) or consistency proof (B11) does not hold."""


class CheckpointError(VerificationError):
    """A CHECKPOINT breaks a rule of §4.4.1."""


class CapError(VerificationError):
    """A cap token breaks a rule of §6."""


class IdentityError(VerificationError):
    """A hub identity does not chain to its anchor (§8.4)."""


class EvidenceError(VerificationError):
    """Equivocation evidence proves nothing (spec-1 §14)."""


class InvariantError(VerificationError):
    """An accepted (MSG, RECEIPT) pair breaks an invariant of §7; ``invariant`` is its name."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class DivergenceError(VerificationError):
    """The hub contradicts what it signed before (§9 Resync).

    ``held`` is the encoded RECEIPT or CHECKPOINT that was verified earlier (empty if none),
    ``shown`` the one that contradicts it: keep both, they are the evidence.
    """

    def __init__(self, message: str, *, held: bytes = b"", shown: bytes = b"") -> None:
        super().__init__(message)
        self.held = held
        self.shown = shown


class UnprovenError(DivergenceError):
    """The hub has not shown that what it signed now extends what it signed before (B11).

    Not yet a contradiction: a consistency proof carries no signature, and may be damaged on its way.
    Ask again; a hub that cannot show it has two histories.
    """


class StateError(VeenError):
    """The client is asked for a step that its state does not allow (§9)."""


class AdmissionError(VeenError):
    """The hub refuses a MSG; ``rejection`` is the row of the admission table (§8.2)."""

    def __init__(self, rejection: Rejection, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.rejection = rejection
        self.retry_after = retry_after


class ApiError(VeenError):
    """Any other refusal on the API (§10.6)."""

    def __init__(self, code: Code, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
