"""Roles: one identity, one hub, and the tokens for exactly the streams that it writes to.

``settings`` reads the role's YAML file, ``session`` issues and loads its tokens and connects to its hub,
``open_role`` does all of that for a service without an event loop. The
roles of an air-gap bridge (AGB0 4.3) and of a recorder (SDR0 3.2.3) are made of these parts.
"""

from veen_hub.client.roles.open_role import OpenRole, open_role
from veen_hub.client.roles.session import (
    TOKEN_BOUNDS,
    Unlock,
    connect_role,
    connect_role_blocking,
    dh_keys_of,
    excess_streams,
    issue_role_token,
    load_plain,
    load_tokens,
    tls_of,
)
from veen_hub.client.roles.settings import (
    ACCESS_KEYS,
    RoleAccess,
    Settings,
    parse_access,
    read_settings,
    write_settings,
)

__all__ = [
    "ACCESS_KEYS",
    "TOKEN_BOUNDS",
    "OpenRole",
    "RoleAccess",
    "Settings",
    "Unlock",
    "connect_role",
    "connect_role_blocking",
    "dh_keys_of",
    "excess_streams",
    "issue_role_token",
    "load_plain",
    "load_tokens",
    "open_role",
    "parse_access",
    "read_settings",
    "tls_of",
    "write_settings",
]
