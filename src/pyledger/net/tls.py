"""TLS contexts of servers and clients, and how a server recognizes TLS connections.

A frame's first byte is always 0, because the longest frame has 16 MiB; that of a TLS hello is 0x16.

Source: RocketMQ remoting/.../netty/TlsHelper.java, NettyRemotingServer.java (TlsModeHandler).
"""

import ssl

from pyledger.config.net import TlsConfig
from pyledger.errors import ConfigError
from pyledger.net.sockets import reason_of

TLS_HELLO = 0x16
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def server_context(config: TlsConfig) -> ssl.SSLContext | None:
    """The context of a server; None when it speaks no TLS, because it is off or has no certificate.

    Raises:
        ConfigError: a certificate or key cannot be read.
    """
    if config.server_mode == "disabled" or not config.server_cert_path:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(
        context, "server", config.server_cert_path, config.server_key_path, config.server_key_password
    )
    if config.server_trust_cert_path:
        load_trusted(context, "server", config.server_trust_cert_path)
    context.verify_mode = CLIENT_AUTH[config.server_need_client_auth]
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext | None:
    """The context of a client; None when it speaks no TLS.

    Raises:
        ConfigError: a certificate or key cannot be read.
    """
    if not config.client_enabled:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    checks = config.client_auth_server and not config.test_mode
    context.check_hostname = checks and config.client_check_host_name
    if not checks:
        context.verify_mode = ssl.CERT_NONE
    elif config.client_trust_cert_path:
        load_trusted(context, "client", config.client_trust_cert_path)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if config.client_cert_path:
        load_identity(
            context, "client", config.client_cert_path, config.client_key_path, config.client_key_password
        )
    return context


def load_identity(context: ssl.SSLContext, side: str, cert_path: str, key_path: str, password: str) -> None:
    """Load the certificate and key of a context."""
    try:
        # An empty password, not None: OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(cert_path, key_path, password=password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{side}_cert_path", f"{cert_path} with {key_path}: {reason_of(error)}", "give PEM files"
        ) from error


def load_trusted(context: ssl.SSLContext, side: str, path: str) -> None:
    """Load the authorities that a context trusts."""
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{side}_trust_cert_path", f"{path}: {reason_of(error)}", "give a PEM file"
        ) from error
