"""Identity: principals, devices, accounts, organisations, handles, links (id-spec v0.0.1, cited as ID).

``records`` declares the records, ``state`` folds them, ``directory`` answers questions about the folded
streams, ``authentication`` finds the account behind a message, ``oidc`` verifies ID tokens of OpenID
Connect.
"""

from veen_overlays.identity.authentication import (
    Authenticated,
    AuthenticationDenied,
    AuthenticationInput,
    authenticate,
)
from veen_overlays.identity.directory import IdentityDirectory
from veen_overlays.identity.state import IDENTITY, on_stream

__all__ = [
    "IDENTITY",
    "OVERLAYS",
    "Authenticated",
    "AuthenticationDenied",
    "AuthenticationInput",
    "IdentityDirectory",
    "authenticate",
    "on_stream",
]

OVERLAYS = (IDENTITY,)
