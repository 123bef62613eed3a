"""The meaning of each refusal code of a hub, and the next step in terms of ``veen`` (core §8.2, core §10.6).

The meanings of the detail codes come from the admission table (``veen_core.rejection``); the next steps are
here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from veen_core.rejection import HTTP_STATUS, TABLE, Code


class Explanation(NamedTuple):
    """The explanation of one code, or of one row of the admission table."""

    name: str
    means: str
    next: str
    http: int
    stage: str | None = None
    code: str | None = None


CODES: Final[dict[Code, tuple[str, str]]] = {
    Code.FORMAT: (
        "the bytes are not the object that the request needs",
        "run `veen inspect FILE` to see what the bytes are",
    ),
    Code.SIZE: (
        "a message or an attachment exceeds the hub's limits",
        "send less, or use an attachment; `veen hub status --json` shows the limits",
    ),
    Code.SIG: (
        "a signature does not verify",
        "send the message again; if that fails, check that --client is the identity that signed",
    ),
    Code.CAP: ("the token does not allow the request", "ask the issuer for a token (`veen cap issue`)"),
    Code.AUTH: ("the hub does not accept this writer", "see the detail code of the refusal"),
    Code.RATE: ("the token's rate is exceeded", "wait, or ask for a token with a higher rate"),
    Code.SEQ: (
        "the message is out of order for this writer",
        "run `veen resync`: the local state and the hub's log disagree",
    ),
    Code.TIME: (
        "the token has expired, or the epoch is wrong",
        "ask for a new token, or check this machine's clock",
    ),
    Code.BAD_REQUEST: (
        "the request is malformed",
        "compare the versions of `veen version` and `veen hub status`",
    ),
    Code.UNAUTHORIZED: (
        "the request needs a current signature of the admin",
        "give the admin's folder with --client, and check this machine's clock",
    ),
    Code.FORBIDDEN: ("the request is not signed by the hub's admin", "give the admin's folder with --client"),
    Code.NOT_FOUND: (
        "the hub does not have this object",
        "check the stream's name, the number and the hub",
    ),
    Code.CONFLICT: ("the same request was made before", "repeat the command, which makes a new request"),
    Code.LIMIT: ("a limit of the hub is reached", "ask for less at a time"),
    Code.UNAVAILABLE: ("the hub cannot serve the request now", "try again later; see `veen hub health`"),
    Code.VERSION: (
        "the hub has another protocol version",
        "compare `veen version` with `veen hub status`",
    ),
}

NEXT: Final[dict[str, str]] = {
    "SIZE_PREFILTER": "send less, or put it into an attachment (--attach)",
    "PREFILTER_REJECT": (
        "solve the proof of work (`veen pow solve`), or ask the operator whether the hub accepts your address"
    ),
    "CBOR_INVALID": "run `veen inspect FILE` to see what the bytes are",
    "FIELD_SIZE": "run `veen inspect FILE` to see what the bytes are",
    "VERSION": "compare `veen version` with `veen hub status`",
    "PROFILE": "send the message again: it was sealed for another hub or profile",
    "CT_HASH": "send the message again: it was changed on its way",
    "ATT_ROOT": "send the message again: its attachments are not the ones it names",
    "SIG_INVALID": "send the message again; if that fails, check that --client is the identity that signed",
    "NOT_PRIMARY": "send to the primary hub of the stream (`veen authority show`)",
    "CAP_MISSING": "ask the hub's admin for a token, and give it to the hub with `veen cap authorize TOKEN`",
    "CAP_INVALID": "ask for a new token: the signatures of this one do not verify (`veen cap inspect`)",
    "CAP_ISSUER": "ask the hub's admin for a token, or an issuer named in its hub.yaml",
    "AUTH_REF": "ask for a token for your identity, or for your client_id (`veen id client-id`)",
    "REVOKED": "ask the admin why; a new token needs a new client_id (`veen id client-id --renew`)",
    "CLIENT_BOUNDS": "renew the client_id (`veen id client-id --renew`) and ask for a token for it",
    "CAP_SCOPE": "ask for a token that names this stream (`veen cap inspect` shows which it names)",
    "CAP_TTL": "ask for a new token: this one has expired (`veen cap status`)",
    "PADDING": "write to a hub whose profile pads, or change the label's class (`veen label-class`)",
    "CAP_RATE": "wait, or ask for a token with a higher rate",
    "PREV_ACK": "run `veen resync`",
    "DUPLICATE": "run `veen resync`, which finds its receipt: the message was accepted before",
    "CLIENT_SEQ": "run `veen resync`; if the state was lost, `veen id client-id --renew`",
    "EPOCH": "check this machine's clock and the hub's (`veen hub status`)",
}
"""The next step, by detail code."""


def all_explanations() -> list[Explanation]:
    """Return all codes, then the rows of the admission table in the hub's order of evaluation."""
    codes = [Explanation(code.value, *CODES[code], http=HTTP_STATUS[code]) for code in Code]
    rows = [
        Explanation(
            row.detail, row.means, NEXT[row.detail], HTTP_STATUS[row.code], row.stage.value, row.code.value
        )
        for row in TABLE
    ]
    return codes + rows


def explain(name: str) -> Explanation | None:
    """Explain a code (``E.CAP``) or a detail code (``CAP_TTL``); None if there is no such code."""
    wanted = name.strip().upper().split(" / ")[-1]
    return next((each for each in all_explanations() if each.name == wanted), None)
