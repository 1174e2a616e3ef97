"""Certificates for tests, and settings of both sides."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyledger.config.net import TlsConfig

CURVE = "ec_paramgen_curve:prime256v1"
OPENSSL = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", CURVE, "-days", "2"]


@dataclass(frozen=True)
class Identity:
    """A self-signed certificate and its key."""

    cert: str
    key: str
    password: str = ""


def make_identity(folder: Path, name: str, host: str, password: str = "") -> Identity:
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={host}"]
    subprocess.run(
        [*OPENSSL, *secret, *names, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
        timeout=100,
    )
    return Identity(str(cert), str(key), password)


def server_tls(identity: Identity, mode: str = "permissive", **options: str) -> TlsConfig:
    return TlsConfig(
        server_mode=mode,
        server_cert_path=identity.cert,
        server_key_path=identity.key,
        server_key_password=identity.password,
        **options,  # type: ignore[arg-type]
    )


def client_tls(trusted: Identity | None, **options: object) -> TlsConfig:
    path = trusted.cert if trusted else ""
    return TlsConfig(client_enabled=True, client_trust_cert_path=path, **options)  # type: ignore[arg-type]
