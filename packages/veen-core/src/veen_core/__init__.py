"""The VEEN protocol as a library: wire objects, proofs, keys, the verifier of logs, and the client.

The package does no IO and has no clock; callers pass in times and random bytes. The names below are public,
and so are the modules ``api``, ``client``, ``hashing``, ``hub_evidence``, ``hub_fork``, ``hub_identity``,
``hub_log``, ``ids``, ``keystore``, ``log_rules``, ``log_verifier``, ``pow``, ``rejection``, ``status``,
``tlog`` and ``wire``.

Each name is imported on first use: a program that uses a part of the protocol does not load the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_core.cap import CapToken, mint, verify_token
    from veen_core.card import IdentityCard, verify_card
    from veen_core.checkpoint import Checkpoint, check_transition
    from veen_core.checkpoint import verify_signature as verify_checkpoint
    from veen_core.ciphertext import Binding
    from veen_core.consistency import MmrConsistency, prove_consistency, verify_consistency
    from veen_core.entry import Entry, split_frames, unframe
    from veen_core.equivocation import Equivocation, verify_evidence
    from veen_core.errors import DecodeError, VeenError, VerificationError
    from veen_core.hashing import H, Ht
    from veen_core.hub_identity import HubIdentity, verify_identity, verify_identity_signature
    from veen_core.ids import ClientId, HubId, HubPk, Label, LeafHash, MmrRoot, StreamId, StreamSeq
    from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
    from veen_core.limits import DEFAULT_LIMITS, Limits
    from veen_core.log_rules import LogTerms
    from veen_core.log_verifier import LogVerifier
    from veen_core.mmr import Mmr
    from veen_core.msg import Msg, operation_id, seal_msg, verify_msg
    from veen_core.payload import PayloadHeader
    from veen_core.profile import DEFAULT_PROFILE, PROFILES, Profile
    from veen_core.proof import MmrProof, prove_inclusion, verify_inclusion
    from veen_core.protocols import Clock, LogReader, LogWriter
    from veen_core.receipt import Receipt, verify_receipt
    from veen_core.stream import label, routing_key, stream_id

PROTOCOL_VERSION = "0.0.1"

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_PROFILE",
    "PROFILES",
    "PROTOCOL_VERSION",
    "Binding",
    "CapToken",
    "Checkpoint",
    "ClientId",
    "Clock",
    "DecodeError",
    "DhKey",
    "DhSecret",
    "Entry",
    "Equivocation",
    "H",
    "Ht",
    "HubId",
    "HubIdentity",
    "HubPk",
    "IdentityCard",
    "Label",
    "LeafHash",
    "Limits",
    "LogReader",
    "LogTerms",
    "LogVerifier",
    "LogWriter",
    "Mmr",
    "MmrConsistency",
    "MmrProof",
    "MmrRoot",
    "Msg",
    "PayloadHeader",
    "Profile",
    "Receipt",
    "SigningKey",
    "SigningSeed",
    "StreamId",
    "StreamSeq",
    "VeenError",
    "VerificationError",
    "check_transition",
    "label",
    "mint",
    "operation_id",
    "prove_consistency",
    "prove_inclusion",
    "routing_key",
    "seal_msg",
    "split_frames",
    "stream_id",
    "unframe",
    "verify_card",
    "verify_checkpoint",
    "verify_consistency",
    "verify_evidence",
    "verify_identity",
    "verify_identity_signature",
    "verify_inclusion",
    "verify_msg",
    "verify_receipt",
    "verify_token",
]

if not TYPE_CHECKING:  # mypy must refuse names that are not listed above
    _MODULES = {
        "cap": ("CapToken", "mint", "verify_token"),
        "card": ("IdentityCard", "verify_card"),
        "checkpoint": ("Checkpoint", "check_transition", "verify_checkpoint"),
        "ciphertext": ("Binding",),
        "consistency": ("MmrConsistency", "prove_consistency", "verify_consistency"),
        "entry": ("Entry", "split_frames", "unframe"),
        "equivocation": ("Equivocation", "verify_evidence"),
        "errors": ("DecodeError", "VeenError", "VerificationError"),
        "hashing": ("H", "Ht"),
        "hub_identity": ("HubIdentity", "verify_identity", "verify_identity_signature"),
        "ids": ("ClientId", "HubId", "HubPk", "Label", "LeafHash", "MmrRoot", "StreamId", "StreamSeq"),
        "keys": ("DhKey", "DhSecret", "SigningKey", "SigningSeed"),
        "limits": ("DEFAULT_LIMITS", "Limits"),
        "log_rules": ("LogTerms",),
        "log_verifier": ("LogVerifier",),
        "mmr": ("Mmr",),
        "msg": ("Msg", "operation_id", "seal_msg", "verify_msg"),
        "payload": ("PayloadHeader",),
        "profile": ("DEFAULT_PROFILE", "PROFILES", "Profile"),
        "proof": ("MmrProof", "prove_inclusion", "verify_inclusion"),
        "protocols": ("Clock", "LogReader", "LogWriter"),
        "receipt": ("Receipt", "verify_receipt"),
        "stream": ("label", "routing_key", "stream_id"),
    }
    _PUBLIC_MODULES = (
        "api",
        "client",
        "hub_evidence",
        "hub_fork",
        "hub_log",
        "keystore",
        "pow",
        "rejection",
        "status",
        "tlog",
        "wire",
    )
    _ORIGINAL_NAMES = {"verify_checkpoint": "verify_signature"}
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    def __getattr__(name: str) -> Any:
        if name in _MODULES or name in _PUBLIC_MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), _ORIGINAL_NAMES.get(name, name))
        globals()[name] = value  # next time Python finds it without this function
        return value
