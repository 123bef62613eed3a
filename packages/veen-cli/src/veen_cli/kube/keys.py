"""The Secrets of a network: made once, and never replaced (spec-4 §9.3).

``veen-hub-keys`` (``veen-authority-keys``) holds the hub's key, ``veen-admin-keys`` the identity of the admin
who issues tokens. Annotations have the public values: reading them needs no access to Secrets.
"""

from __future__ import annotations

import base64
import os
import time
from typing import Final

from veen_cli.identity.identity_folder import card_of, new_secrets
from veen_cli.kube.kustomize import Object
from veen_cli.kube.tenant import KubeNetwork
from veen_core.ids import HubPk, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.stream import hub_id
from veen_storage.formats import KeyFile, key_file_name

ADMIN_SECRET: Final = "veen-admin-keys"  # noqa: S105 - the name of an object
HUB_ID: Final = "veen.io/hub-id"
ADMIN: Final = "veen.io/admin"


def new_hub_key() -> SigningKey:
    return SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE)))


def key_entry(key: SigningKey) -> dict[str, str]:
    """Return a hub key as an entry of a Secret's data: file name and content in base64."""
    hub_pk = HubPk(key.public)
    return {key_file_name(hub_pk): _base64(KeyFile(hub_pk=hub_pk, seed=key.seed).encode())}


def hub_secret(network: KubeNetwork) -> Object:
    """Make the hub's key."""
    key = new_hub_key()
    return _secret(network, network.key_secret, key_entry(key), {HUB_ID: hub_id(HubPk(key.public)).hex()})


def admin_secret(network: KubeNetwork) -> Object:
    """Make the admin's identity, as the folder that ``veen keygen --no-passphrase`` writes."""
    now = UnixTime(int(time.time()))
    secrets = new_secrets(now)
    card = card_of(secrets, now)
    files = {"secrets.cbor": _base64(secrets.encode()), "identity_card.pub": _base64(card.encode())}
    return _secret(network, ADMIN_SECRET, files, {ADMIN: card.id_sign.hex()})


def _secret(network: KubeNetwork, name: str, data: dict[str, str], notes: dict[str, str]) -> Object:
    labels = {"app.kubernetes.io/part-of": "veen", "veen.io/universe-id": network.universe}
    if network.tenant is not None:
        labels["veen.io/tenant-id"] = network.tenant
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": network.namespace, "labels": labels, "annotations": notes},
        "type": "Opaque",
        "data": data,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
