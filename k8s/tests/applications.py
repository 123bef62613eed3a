"""What the operator and the applications of a test network do: connect, issue tokens, make Secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster import Namespace, Object, Pod
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from veen_cli.identity.identity_folder import card_of, new_secrets
from veen_cli.kube import kustomize
from veen_cli.kube.keys import HUB_ID
from veen_cli.kube.kustomize import Image, Kustomization
from veen_cli.kube.tenant import IMAGES, manifests
from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, HubId, StreamId, UnixTime
from veen_core.keystore import Secrets
from veen_core.stream import stream_id
from veen_hub.client import Identity, Message, connect


def objects(base: str, namespace: str, tag: str, image_prefix: str = "localhost/") -> list[Object]:
    """Render a base into a namespace, as an overlay does."""
    labels = {"veen.io/universe-id": "default", "veen.io/tenant-id": namespace.removeprefix("veen-tenant-")}
    return kustomize.build(
        Kustomization(
            resources=(manifests() / "base" / base,),
            namespace=namespace,
            labels=labels,
            images=tuple(Image(name=name, new_name=f"{image_prefix}{name}", new_tag=tag) for name in IMAGES),
        )
    )


def secret(namespace: str, name: str, files: dict[str, bytes]) -> Object:
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def new_identity() -> tuple[Identity, dict[str, bytes]]:
    """Make an identity; return it with the files of its folder."""
    now = UnixTime(int(time.time()))
    secrets = new_secrets(now)
    files = {"secrets.cbor": secrets.encode(), "identity_card.pub": card_of(secrets, now).encode()}
    return Identity.of(secrets), files


def hub_id_of(namespace: Namespace) -> str:
    (name,) = {"veen-hub-keys", "veen-authority-keys"} & {key[1] for key in namespace.objects}
    return str(namespace.objects["Secret", name]["metadata"]["annotations"][HUB_ID])


def token(namespace: Namespace, subject: ClientId, streams: Sequence[str]) -> CapToken:
    """Issue a token with the key of the namespace's admin."""
    return token_of(namespace.objects["Secret", "veen-admin-keys"], subject, streams)


def token_of(admin: Object, subject: ClientId, streams: Sequence[str]) -> CapToken:
    """Issue a token with the key of the Secret of an admin."""
    key = Secrets.decode(base64.b64decode(admin["data"]["secrets.cbor"])).signing_key
    return mint(key, subject, [stream_id(name) for name in streams], 3_600)


def send(
    namespace: Namespace, pod: Pod, stream: str, bodies: Sequence[Any], to: Identity | None = None
) -> None:
    """Send messages as an application that the admin admits."""
    writer, _files = new_identity()
    reader = (to or writer).recipient

    async def source(client: ClientId, on: StreamId) -> CapToken:
        return replace(token(namespace, client, [on.hex()]))

    async def work() -> None:
        trust = HubId.from_hex(hub_id_of(namespace))
        async with connect(f"http://{pod.ip}:8080", writer, trust=trust, tokens=source) as hub:
            async for _ in hub.stream(stream, to=reader).send_many(bodies):
                pass

    asyncio.run(work())


def read(namespace: Namespace, pod: Pod, stream: str, reader: Identity) -> list[Message]:
    async def work() -> list[Message]:
        trust = HubId.from_hex(hub_id_of(namespace))
        async with connect(f"http://{pod.ip}:8080", reader, trust=trust) as hub:
            return [message async for message in hub.stream(stream).read()]

    return asyncio.run(work())


def get(pod: Pod, port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://{pod.ip}:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def post(pod: Pod, port: int, path: str, body: Any, bearer: str) -> Any:
    request = urllib.request.Request(
        f"http://{pod.ip}:{port}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def certificate(*names: str) -> dict[str, bytes]:
    """Make the files of a kubernetes.io/tls Secret: an authority, and a certificate for these names."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    now = datetime.now(UTC)

    def signed(subject: x509.Name, public: Any, *extensions: tuple[x509.ExtensionType, bool]) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
        )
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    known_by = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    return {
        "ca.crt": signed(
            issuer,
            authority.public_key(),
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
            (known_by, False),
        ),
        "tls.crt": signed(own, key.public_key(), (alternatives, False), (signed_by, False)),
        "tls.key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
