"""From an exception to what the user reads and the script gets: one line and an exit code.

Families by who can act, most special first. Imported only when something failed, so that a command line
that is merely wrong does not load the client.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from veen_cli.frame.exits import Exit
from veen_cli.frame.explanations import explain
from veen_core.errors import (
    ConfigError,
    DecodeError,
    EncodeError,
    IdentityError,
    KeystoreError,
    OpenError,
    StateError,
    VeenError,
    VerificationError,
)
from veen_core.rejection import Code
from veen_hub.client.errors import BoundsReached, Diverged, Misbehaved, Refused, Unreachable
from veen_storage.errors import DamageError, LockedError, MismatchError, StorageError

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
    (IdentityError, "this is not the hub you pinned: do not send to it, ask its operator"),
    (LockedError, "`veen hub stop` does"),
    (KeystoreError, "check the passphrase (VEEN_PASSPHRASE, --passphrase-file) and --client"),
    (OpenError, "read as the identity it was sealed to (--client)"),
    (Misbehaved, "something else may answer there: check the address (--hub), then ask the hub's operator"),
    (DecodeError, "see what it is with `veen inspect`"),
    (VerificationError, "do not rely on it: ask for it again, and keep this one as evidence"),
)
"""What to do, where the error itself does not say."""


COMMANDS: Final = {
    "(stream.client_id())": "(`veen id client-id`)",
    "call stream.rotate()": "run `veen id client-id --renew`",
}
SYSTEM: Final = {
    errno.ENOENT: "check the name, and the folder you are in",
    errno.EACCES: "check who owns it, and run as somebody who may",
    errno.EPERM: "check who owns it, and run as somebody who may",
    errno.EEXIST: "something of that name is there already: move it away",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "something in that path is a file",
    errno.ENOSPC: "make room and try again",
    errno.EROFS: "choose a folder that can be written to",
    errno.EADDRINUSE: "choose another --port, or stop what listens there",
}
"""What to do, by the system's number."""
HUNG_UP: Final = "if the hub uses TLS, write https:// in --hub"
SILENCE: Final = {
    "WRONG_VERSION_NUMBER": "nobody speaks TLS there: if the hub is plain HTTP, write http:// in --hub",
    "certificate": "name the authority that signed its certificate with --ca",
    "CERTIFICATE": "name the authority that signed its certificate with --ca",
    "disconnected": HUNG_UP,
    "Connection reset": HUNG_UP,
    "closed connection": HUNG_UP,
    "not an address": "write an address like https://hub.example:8080 in --hub",
}
"""What to do about a hub that does not answer, or not any more, by what the network's words contain."""
NOT_TEXT: Final = frozenset(map(chr, range(0xDC80, 0xDD00)))
"""What Python makes of bytes in arguments and variables that are no text (PEP 383)."""
_CONNECTING: Final = re.compile(r"Cannot connect to host \S+ ssl:\S+ \[(.*)\]", re.DOTALL)


def judge(error: BaseException) -> tuple[str, Exit] | None:
    """What to say and how to end; None for what nobody foresaw."""
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in NOT_TEXT:
        return "a name or text on the command line is not UTF-8: write it in UTF-8", Exit.USAGE
    code = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    if isinstance(error, OSError):
        return _of_system(error), code
    message = _as_commands(str(error) or type(error).__name__)
    if isinstance(error, Refused):
        return _of_refusal(error), code
    if isinstance(error, Diverged):
        return message, code
    if isinstance(error, Unreachable):
        return _of_silence(message.partition("; gave up")[0]), code
    hint = next((hint for kind, hint in NEXT if isinstance(error, kind)), None) or _of_cause(error)
    return (f"{message}; {hint}" if hint else message), code


def _of_cause(error: BaseException) -> str | None:
    """What helps if a file of ours could not be read or written: a state folder, a pin (RESYNC0.4)."""
    if not isinstance(error, StateError) or not isinstance(error.__cause__, OSError):
        return None
    return SYSTEM.get(error.__cause__.errno or 0, "look at that folder, and at the disk it is on")


def _as_commands(message: str) -> str:
    """The client library names its methods; here they are commands."""
    for method, named in COMMANDS.items():
        message = message.replace(method, named)
    return message


def _of_refusal(error: Refused) -> str:
    """Code, the hub's words, and what to do in terms of ``veen``."""
    name = error.detail_enum or error.code.value
    shown = f"{error.code.value} / {name}" if error.detail_enum else name
    again = f" in {error.retry_after} s" if error.retry_after is not None else ""
    known = explain(name)
    if error.code is Code.NOT_FOUND and error.hub_message.startswith("there is no /"):
        return f"the hub refused, {shown}: {error.hub_message}; leave the path out of the address (--hub)"
    hint = f"; {known.next}{again}" if known is not None else ""
    return f"the hub refused, {shown}: {error.hub_message}{hint} (`veen explain {name}`)"


def _of_system(error: OSError) -> str:
    what = error.strerror or str(error) or type(error).__name__
    said = f"{error.filename}: {what}" if error.filename else what
    hint = SYSTEM.get(error.errno or 0)
    return f"{said}; {hint}" if hint else said


def _of_silence(message: str) -> str:
    """Why no answer came, without the words of the library that noticed, and what helps against it."""
    message = _CONNECTING.sub(r"\1", message)
    hint = next((hint for sign, hint in SILENCE.items() if sign in message), None)
    if hint is HUNG_UP and message.startswith("https:"):
        hint = "if the hub demands a certificate of its clients, show one with --cert and --cert-key"
    return f"{message}; {hint or 'check that the hub runs (`veen hub start`) and its address (--hub)'}"
