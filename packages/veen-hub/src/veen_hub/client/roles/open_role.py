"""A role that is connected to its hub, for services without an event loop.

role = open_role("shop/recorder.yaml")
role.stream("record/app/orders").send(record)
role.close()
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from veen_core.ids import ClientId, DhPublicKey
from veen_core.keys import SigningKey
from veen_hub.client.atomic_files import expand_user
from veen_hub.client.blocking import BlockingHub, BlockingStream
from veen_hub.client.identity import Identity
from veen_hub.client.roles.session import connect_role_blocking
from veen_hub.client.roles.settings import ACCESS_KEYS, RoleAccess, Settings, parse_access, read_settings
from veen_hub.client.wire.retry import Retry


class OpenRole:
    """One role: its settings, its identity and its hub. Made by ``open_role``."""

    def __init__(
        self, settings: Mapping[str, Any], access: RoleAccess, identity: Identity, retry: Retry | None
    ) -> None:
        self.settings = {key: value for key, value in settings.items() if key not in ACCESS_KEYS}
        """The settings of the file that do not concern the hub."""
        self._identity = identity
        with ExitStack() as stack:
            self.hub: BlockingHub = stack.enter_context(connect_role_blocking(access, identity, retry=retry))
            self.writes_as_identity: bool = bool(access.tokens) and self.hub.status().gating
            """Whether a token makes the hub accept messages that the identity's own key signs."""
            self._open = stack.pop_all()

    @property
    def client_id(self) -> ClientId:
        """The identity's own key."""
        return self._identity.client_id

    @property
    def signing_key(self) -> SigningKey:
        return self._identity.signing_key

    def stream(self, name: str, *, to: DhPublicKey | None = None) -> BlockingStream:
        """Return a stream of the role's hub; messages are sealed to ``to``, or to the role's own key."""
        return self.hub.stream(name, to=to)

    def close(self) -> None:
        """Close the connection."""
        self._open.close()


def open_role(
    path: Path | str, passphrase: str | bytes | None = None, *, retry: Retry | None = None
) -> OpenRole:
    """Connect the role whose YAML file this is; ``passphrase`` opens its keystore, if it is sealed."""
    file = expand_user(path).absolute()
    settings = read_settings(file)
    access = parse_access(Settings(settings, file.parent))
    return OpenRole(settings, access, Identity.load(access.client, passphrase), retry)
