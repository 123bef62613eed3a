"""From an exception to what the user reads and the script gets: one line and an exit code.

Families by who can act, most special first. Imported only when something failed, so that a command line
that is merely wrong does not load the client.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from veen_cli.exits import Exit
from veen_cli.explanations import explain
from veen_core.errors import (
    ConfigError,
    DecodeError,
    DivergenceError,
    EncodeError,
    IdentityError,
    KeystoreError,
    OpenError,
    StateError,
    VeenError,
    VerificationError,
)
from veen_hub.client.errors import BoundsReached, Diverged, Refused, Unreachable
from veen_storage.errors import DamageError, MismatchError, StorageError

CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (Unreachable, Exit.NETWORK),
    (Refused, Exit.REFUSED),
    (BoundsReached, Exit.POLICY),
    (DamageError, Exit.PROTOCOL),
    (MismatchError, Exit.PROTOCOL),
    (StorageError, Exit.USAGE),
    (KeystoreError, Exit.USAGE),
    (ConfigError, Exit.USAGE),
    (StateError, Exit.USAGE),
    (EncodeError, Exit.USAGE),
    (VerificationError, Exit.PROTOCOL),
    (DecodeError, Exit.PROTOCOL),
    (OpenError, Exit.PROTOCOL),
    (VeenError, Exit.PROTOCOL),
    (OSError, Exit.USAGE),
)
"""First match counts."""

NEXT: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (Unreachable, "check that the hub runs (`veen hub start`) and its address (--hub)"),
    (IdentityError, "this is not the hub you pinned: do not send to it, ask its operator"),
    (KeystoreError, "check the passphrase (VEEN_PASSPHRASE, --passphrase-file) and --client"),
    (OpenError, "read as the identity it was sealed to (--client)"),
    (DecodeError, "see what it is with `veen inspect`"),
    (VerificationError, "do not rely on it: ask for it again, and keep this one as evidence"),
)
"""What to do, where the error itself does not say."""


def judge(error: BaseException) -> tuple[str, Exit] | None:
    """What to say and how to end; None for what nobody foresaw."""
    code = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    if isinstance(error, OSError):
        return _of_system(error), code
    message = str(error) or type(error).__name__
    if isinstance(error, Refused):
        return _of_refusal(error), code
    if isinstance(error, DivergenceError) and (kept := keep_evidence(error)) is not None:
        return f"{message}; stop using this hub: the evidence is in {kept} (`veen inspect {kept}/*`)", code
    if isinstance(error, Unreachable):
        message = message.partition("; gave up")[0]
    hint = next((hint for kind, hint in NEXT if isinstance(error, kind)), None)
    return (f"{message}; {hint}" if hint else message), code


def keep_evidence(error: DivergenceError) -> Path | None:
    """What the hub signed earlier and what contradicts it, as files: nobody else may have them."""
    evidence = error.equivocation if isinstance(error, Diverged) else None
    found = {
        "held.cbor": error.held,
        "shown.cbor": error.shown,
        "equivocation.cbor": evidence.encode() if evidence is not None else b"",
    }
    if not any(found.values()):
        return None
    folder = Path(tempfile.mkdtemp(prefix="veen-evidence-"))
    for name, content in found.items():
        if content:
            (folder / name).write_bytes(content)
    return folder


def _of_refusal(error: Refused) -> str:
    """Code, the hub's words, and what to do in terms of ``veen``."""
    name = error.detail_enum or error.code.value
    shown = f"{error.code.value} / {name}" if error.detail_enum else name
    again = f" in {error.retry_after} s" if error.retry_after is not None else ""
    known = explain(name)
    hint = f"; {known.next}{again}" if known is not None else ""
    return f"the hub refused, {shown}: {error.message}{hint} (`veen explain {name}`)"


def _of_system(error: OSError) -> str:
    what = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {what}" if error.filename else what
