"""From an exception to an error report: message, next step, exit code.

Imported only after a failure: it loads the client and the storage, which wrong usage does not need.

The message is the exception's own. The next step is, in this order: the one in ``COMMAND_ACTIONS`` (the
client library speaks of its methods, the user types commands), the exception's ``action``, the one in
``DEFAULT_ACTIONS``.
"""

from __future__ import annotations

import errno
from typing import Final

from veen_cli.frame.exits import Exit
from veen_cli.frame.explanations import explain
from veen_cli.frame.process import ErrorReport
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
from veen_hub.client.errors import BoundsReached, Misbehaved, Refused, Unreachable
from veen_storage import DamageError, MismatchError, StorageError

EXIT_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
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
"""The exit code of each family of errors; the first match counts."""

COMMAND_ACTIONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (BoundsReached, "run `veen id client-id --renew`, and ask for a token for the new client_id"),
)

DEFAULT_ACTIONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (
        IdentityError,
        "compare the pin (--trust) with your hub's operator; do not send to a hub that is not pinned",
    ),
    (KeystoreError, "check the passphrase (VEEN_PASSPHRASE, --passphrase-file) and --client"),
    (OpenError, "read as the identity it was sealed to (--client)"),
    (Misbehaved, "check the address (--hub), then ask the hub's operator"),
    (Unreachable, "check that the hub runs (`veen hub start`) and its address (--hub)"),
    (DecodeError, "run `veen inspect FILE` to see what the file is"),
    (VerificationError, "do not rely on this object; keep it as evidence, and fetch it again"),
)

SYSTEM_ACTIONS: Final = {
    errno.ENOENT: "check the name, and the current folder",
    errno.EACCES: "check its owner and permissions, or run as another user",
    errno.EPERM: "check its owner and permissions, or run as another user",
    errno.EEXIST: "move away the file or folder of that name",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.ENOSPC: "free disk space and try again",
    errno.EROFS: "choose a folder on a writable file system",
    errno.EADDRINUSE: "choose another port, or stop the program that listens there",
}
"""The next step after an error of the operating system, by ``errno``."""
UNDECODABLE: Final = frozenset(map(chr, range(0xDC80, 0xDD00)))
"""Python's stand-ins for bytes in arguments and variables that are not UTF-8 (PEP 383)."""


def report_of(error: BaseException) -> ErrorReport | None:
    """Return the report of a known error; None for a bug."""
    if isinstance(error, UnicodeEncodeError) and error.object[error.start] in UNDECODABLE:
        return ErrorReport("a name or text on the command line is not UTF-8", Exit.USAGE, "write it in UTF-8")
    code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    if isinstance(error, OSError):
        return ErrorReport(_system_message(error), code, SYSTEM_ACTIONS.get(error.errno or 0))
    assert isinstance(error, VeenError)
    if isinstance(error, Refused):
        return refusal_report(error)
    message = error.message or type(error).__name__
    return ErrorReport(message, code, _action_of(error))


def _action_of(error: VeenError) -> str | None:
    for kind, action in COMMAND_ACTIONS:
        if isinstance(error, kind):
            return action
    if error.action is not None:
        return error.action
    if isinstance(error, StateError) and isinstance(error.__cause__, OSError):
        return SYSTEM_ACTIONS.get(error.__cause__.errno or 0, "check that folder, and the disk it is on")
    return next((action for kind, action in DEFAULT_ACTIONS if isinstance(error, kind)), None)


def refusal_report(error: Refused) -> ErrorReport:
    """Report a hub's refusal: its code and message, and the next step as a ``veen`` command."""
    name = error.detail_enum or error.code.value
    code = f"{error.code.value} / {name}" if error.detail_enum else name
    message = f"the hub refused, {code}: {error.hub_message}"
    known = explain(name)
    if error.code is Code.NOT_FOUND and error.hub_message.startswith("there is no /"):
        action = "remove the path from the address (--hub)"
    else:
        wait = f" in {error.retry_after} s" if error.retry_after is not None else ""
        action = (
            f"{known.next}{wait} (`veen explain {name}`)"
            if known is not None
            else f"see `veen explain {name}`"
        )
    return ErrorReport(message, Exit.REFUSED, action, name)


def _system_message(error: OSError) -> str:
    what = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {what}" if error.filename else what
