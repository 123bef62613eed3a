"""Keys and certificates of a test cluster: authority, API server, administrator, accounts of pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
SERVICE_IP: Final = "10.96.0.1"
"""The first address of the range of Services: the API server for pods."""


def write_certificates(folder: Path, node_ip: str) -> None:
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("veen test cluster")
    known_by = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, *more: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in more:
            made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.crt").write_bytes(signed(issuer, authority.public_key(), is_authority, known_by))
    addresses = ("127.0.0.1", node_ip, SERVICE_IP)
    alternatives = [x509.DNSName(each) for each in (*SERVER_NAMES, "localhost")]
    alternatives_ip = [x509.IPAddress(ip_address(each)) for each in addresses]
    for file, subject, more in (
        ("server", _name("kube-apiserver"), [x509.SubjectAlternativeName([*alternatives, *alternatives_ip])]),
        ("admin", _name("veen-test-admin", "system:masters"), []),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        (folder / f"{file}.crt").write_bytes(signed(subject, key.public_key(), usage, signed_by, *more))
        _write_key(folder / f"{file}.key", key)
    accounts = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "accounts.key", accounts)
    (folder / "accounts.pub").write_bytes(
        accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _name(common: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
