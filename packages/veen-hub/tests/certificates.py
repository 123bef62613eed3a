"""Certificates for tests of TLS: an authority, the hub's, a client's, and one by a stranger."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """PEM files in a folder, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority, key = self._authority("authority")
        stranger, stranger_key = self._authority("stranger")
        self.authority = folder / "authority.pem"
        self.hub = self._issue("hub", authority, key)
        self.client = self._issue("client", authority, key)
        self.stranger = self._issue("strange client", stranger, stranger_key)

    def _authority(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._build(name, key, None, key, authority=True)
        (self._folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return made, key

    def _issue(
        self, name: str, issuer: x509.Certificate, by: ec.EllipticCurvePrivateKey
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._build(name, key, issuer, by, authority=False)
        cert, secret = self._folder / f"{name}.cert.pem", self._folder / f"{name}.key.pem"
        cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert, secret

    @staticmethod
    def _build(
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Certificate | None,
        by: ec.EllipticCurvePrivateKey,
        *,
        authority: bool,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer is not None else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False
            )
        )
        if not authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(by, hashes.SHA256())
