"""Wallets as a fold over their events (wallet-spec v0.0.1, cited as WAL).

``records`` declares the events, ``account`` summarises a range of one wallet's events, ``window`` does so for
the daily limit, ``movements`` adds up consecutive payments, ``ledger`` is the overlay over all wallets of a
stream. ``rules`` refuses forbidden events before they are sent and reports them in a log, ``settlement``
compares transfers between two streams, ``owners`` says who has taken over a wallet, ``approval`` checks the
signatures of a transfer's approvers.
"""

from veen_overlays.wallet.account import WalletState
from veen_overlays.wallet.ledger import LEDGER, one_wallet, state_of
from veen_overlays.wallet.owners import OWNERS
from veen_overlays.wallet.rules import WalCode, WalletPolicy, refusal, violations

__all__ = [
    "LEDGER",
    "OVERLAYS",
    "WalCode",
    "WalletPolicy",
    "WalletState",
    "one_wallet",
    "refusal",
    "state_of",
    "violations",
]

OVERLAYS = (LEDGER, OWNERS)
