"""The errors of VEEN: one root, and one class per kind of failure that a caller may want to handle.

    VeenError
    ├── DecodeError          the bytes are not the object they claim to be     §3.1
    ├── EncodeError          a value has no canonical encoding                 §3.1
    ├── ConfigError          a chosen setting is not allowed                   §3.5, §14.1
    ├── KeystoreError        a keystore does not open                          spec-1 §15
    ├── OpenError            a ciphertext does not open with this key          §4.2
    ├── VerificationError    well-formed, but does not verify
    │   ├── SignatureError   a signature does not verify                       §4.1, §4.3
    │   ├── ProofError       an inclusion or consistency proof is wrong        §5.4, B11
    │   ├── CheckpointError  a CHECKPOINT breaks a rule of §4.4.1              §4.4.1
    │   ├── CapError         a cap token breaks a rule of §6                   §6
    │   ├── IdentityError    a hub identity does not chain to its anchor       §8.4
    │   ├── InvariantError   an entry breaks a rule of the log; names it       §7, H3, H5
    │   ├── EvidenceError    evidence does not prove what it claims            spec-1 §14
    │   ├── QuorumError      too few witnesses cosigned a hub checkpoint       P2
    │   └── DivergenceError  the hub contradicts what it signed before         §9
    │       └── UnprovenError  a consistency proof is wrong or damaged         B11
    ├── StateError           the client's state does not allow this step        §9
    ├── AdmissionError       the hub refuses a MSG; carries a Rejection        §8.2
    └── ApiError             any other refusal on the API; carries a Code      §10.6

No message, argument or attribute of an error contains a secret. Errors cross process boundaries: pickle and
copy keep their message, attributes and notes.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_core.rejection import Code, Rejection


class VeenError(Exception):
    """Base of every error that this project raises.

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
        # Exception.__reduce__ would call the class with ``args``: the message, but no keyword arguments.
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(cls: type[VeenError], args: tuple[Any, ...]) -> VeenError:
    """Rebuild an error without calling its constructor, since ``args`` is the composed message."""
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class DecodeFault(enum.IntEnum):
    """The kind of a decode error. If several fields are wrong, the lowest is reported (§8.2)."""

    CBOR = 0
    SIZE = 1
    VERSION = 2


class DecodeError(VeenError):
    """The bytes are not the object they claim to be (§3.1).

    ``where`` names object, field and clause, such as ``"RECEIPT.label (core §4.3)"``. ``found`` says what
    was expected and what was found.
    """

    def __init__(self, found: str, *, fault: DecodeFault = DecodeFault.CBOR, where: str = "") -> None:
        super().__init__(f"{where}: {found}" if where else found)
        self.found = found
        self.fault = fault
        self.where = where

    def within(self, where: str) -> DecodeError:
        """Return the same error with the name of the object that contains the field."""
        path = f"{where}: {self.where}" if self.where else where
        return DecodeError(self.found, fault=self.fault, where=path)


class EncodeError(VeenError):
    """A value has no canonical encoding (§3.1)."""


class ConfigError(VeenError):
    """A chosen setting is not allowed (§3.5, §14.1)."""


class KeystoreError(VeenError):
    """A keystore does not open: wrong passphrase, damaged file, or cost out of bounds."""


class OpenError(VeenError):
    """A ciphertext or attachment does not open with this key, or breaks a rule of §4.2 or §4.6."""


class VerificationError(VeenError):
    """A well-formed object does not verify."""


class SignatureError(VerificationError):
    """An Ed25519 signature does not verify.

    ``found`` is the message without the clause that it cites, and ``clause`` that clause, if it cites one.
    """

    def __init__(
        self,
        message: str,
        *,
        found: str | None = None,
        clause: str | None = None,
        action: str | None = None,
    ) -> None:
        super().__init__(message, action=action)
        self.found = found if found is not None else message
        self.clause = clause


class ProofError(VerificationError):
    """An inclusion proof (§5.4) or consistency proof (B11) is wrong."""


class CheckpointError(VerificationError):
    """A CHECKPOINT breaks a rule of §4.4.1."""


class CapError(VerificationError):
    """A cap token breaks a rule of §6."""


class IdentityError(VerificationError):
    """A hub identity does not chain to its anchor (§8.4)."""


class EvidenceError(VerificationError):
    """A file of evidence does not prove what it claims (spec-1 §14)."""


class QuorumError(VerificationError):
    """Too few witnesses cosigned a hub checkpoint, or too long ago (P2, C2SP tlog-policy)."""


class InvariantError(VerificationError):
    """An entry breaks a rule of the log; ``invariant`` is the rule's name, such as "I3" (``log_rules``).

    ``found`` says what is wrong, without the ``clause`` that states the rule.
    """

    def __init__(
        self, invariant: str, found: str, *, clause: str | None = None, seq: int | None = None
    ) -> None:
        cited = f" ({clause}, stream_seq {seq})" if clause is not None else ""
        super().__init__(f"{invariant}: {found}{cited}")
        self.invariant = invariant
        self.found = found
        self.clause = clause


class DivergenceError(VerificationError):
    """The hub contradicts what it signed before (§9 Resync).

    ``held`` is the encoded RECEIPT or CHECKPOINT that was verified earlier (empty if there is none),
    ``shown`` the one that contradicts it. Keep both: they are the evidence.
    """

    def __init__(self, message: str, *, held: bytes = b"", shown: bytes = b"") -> None:
        super().__init__(message)
        self.held = held
        self.shown = shown


class UnprovenError(DivergenceError):
    """The hub has not proved that its later signed tree extends the earlier one (B11).

    This is not a contradiction yet: a consistency proof has no signature and may be damaged in transit.
    Ask for the proof again; a hub that cannot give a valid one has two histories.
    """


class StateError(VeenError):
    """The state of the client does not allow this step (§9)."""


class AdmissionError(VeenError):
    """The hub refuses a MSG; ``rejection`` is the row of the admission table that applies (§8.2)."""

    def __init__(self, rejection: Rejection, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.rejection = rejection
        self.retry_after = retry_after


class ApiError(VeenError):
    """The hub refuses a request other than a MSG (§10.6)."""

    def __init__(self, code: Code, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
