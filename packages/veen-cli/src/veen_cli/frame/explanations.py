"""What each refusal means and what to do about it, in terms of ``veen`` (§8.2, §10.6).

Meanings of rows are the admission table's own (``veen_core.rejection``); what to do next is written here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from veen_core.rejection import HTTP_STATUS, TABLE, Code


class Explanation(NamedTuple):
    """One code, or one row of the admission table."""

    name: str
    means: str
    next: str
    http: int
    stage: str | None = None
    code: str | None = None


CODES: Final[dict[Code, tuple[str, str]]] = {
    Code.FORMAT: ("the bytes are not the object they must be", "see them with `veen inspect`"),
    Code.SIZE: (
        "something is larger than the hub's limits",
        "send less, or as an attachment; `veen hub status --json` has the limits",
    ),
    Code.SIG: (
        "a signature does not hold",
        "the message was changed on its way, or the keys in --client are not its own",
    ),
    Code.CAP: ("the cap token does not allow this", "ask the issuer for a token: `veen cap issue`"),
    Code.AUTH: ("the hub does not let this writer in", "see the detail beside it"),
    Code.RATE: ("too fast for the token's rate", "wait as long as it says, or ask for a higher rate"),
    Code.SEQ: (
        "out of order for this writer",
        "run `veen resync`: the state here and the hub's log disagree",
    ),
    Code.TIME: ("too late, or in the wrong epoch", "ask for a new token, or check this machine's clock"),
    Code.BAD_REQUEST: ("the request itself is wrong", "compare versions: `veen version`, `veen hub status`"),
    Code.UNAUTHORIZED: (
        "an admin must sign this, now",
        "use the admin's folder with --client; check this machine's clock",
    ),
    Code.FORBIDDEN: ("signed, but not by an admin of this hub", "use the admin's folder with --client"),
    Code.NOT_FOUND: ("the hub has no such thing", "check the stream's name, the number and the hub"),
    Code.CONFLICT: ("it was done already", "nothing: asking again makes a new request"),
    Code.LIMIT: ("a limit of the hub is reached", "ask for less at once"),
    Code.UNAVAILABLE: ("the hub cannot do it now", "try again later; `veen hub health` says more"),
    Code.VERSION: ("another version of the protocol", "compare `veen version` with `veen hub status`"),
}

NEXT: Final[dict[str, str]] = {
    "SIZE_PREFILTER": "send less, or put it into an attachment (--attach)",
    "PREFILTER_REJECT": "the hub asks for proof of work (`veen pow solve`), or does not serve this address",
    "CBOR_INVALID": "see the bytes with `veen inspect`",
    "FIELD_SIZE": "see the bytes with `veen inspect`",
    "VERSION": "compare `veen version` with `veen hub status`",
    "PROFILE": "the message was sealed for another hub or profile: send it anew",
    "CT_HASH": "the message was changed on its way: send it anew",
    "ATT_ROOT": "the attachments are not those of the message: send it anew",
    "SIG_INVALID": "the message was changed on its way, or the keys in --client are not its own",
    "NOT_PRIMARY": "send to the hub that is the stream's primary",
    "CAP_MISSING": "authorize a token (`veen cap authorize TOKEN`), or name it with --cap",
    "CAP_INVALID": "the token's signatures do not hold (`veen cap inspect`): ask for a new one",
    "CAP_ISSUER": "ask for a token of the hub's admin, or of an issuer in its hub.yaml",
    "AUTH_REF": "a token serves one writer: ask for one for your identity, or for `veen id client-id`",
    "REVOKED": "ask whoever revoked it; a new token needs a new client_id (`veen id client-id --renew`)",
    "CLIENT_BOUNDS": "renew the client_id (`veen id client-id --renew`) and ask for a token for it",
    "CAP_SCOPE": "ask for a token that names this stream (`veen cap inspect` shows which it names)",
    "CAP_TTL": "ask for a new token: this one has expired (`veen cap status`)",
    "PADDING": "write to a hub whose profile pads, or have the label's class changed (`veen label-class`)",
    "CAP_RATE": "wait as long as it says, or ask for a token with a higher rate",
    "PREV_ACK": "run `veen resync`",
    "DUPLICATE": "nothing is lost: it was accepted before; `veen resync` finds its receipt",
    "CLIENT_SEQ": "run `veen resync`; if the state was lost, `veen id client-id --renew`",
    "EPOCH": "check this machine's clock and the hub's (`veen hub status`)",
}
"""By detail enum."""


def all_explanations() -> list[Explanation]:
    """Codes, then the rows of the table in the order in which the hub evaluates them."""
    codes = [Explanation(code.value, *CODES[code], http=HTTP_STATUS[code]) for code in Code]
    rows = [
        Explanation(
            row.detail, row.means, NEXT[row.detail], HTTP_STATUS[row.code], row.stage.value, row.code.value
        )
        for row in TABLE
    ]
    return codes + rows


def explain(name: str) -> Explanation | None:
    """By code (``E.CAP``) or detail (``CAP_TTL``); ``VERSION`` is the row, ``E.VERSION`` the code."""
    wanted = name.strip().upper().split(" / ")[-1]
    return next((each for each in all_explanations() if each.name == wanted), None)
