"""Settings of remoting: servers, clients, TLS. Defaults that differ from upstream's are explained.

Source: RocketMQ remoting/.../NettyServerConfig.java, NettyClientConfig.java, NettySystemConfig.java,
TlsSystemConfig.java.
"""

from pyledger.config.fields import check, setting, settings_class
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_S = 86_400
FRAME_BYTES_MAX = 16 << 20


@settings_class
class NetConfig:
    """Limits and timeouts of the connections of servers and clients."""

    frame_max_bytes: int = setting(
        FRAME_BYTES_MAX,
        unit="bytes",
        range=(1024, FRAME_BYTES_MAX),
        upstream="com.rocketmq.remoting.frameMaxLength",
    )
    """Longest frame, including its length field. A connection that announces a longer one is closed before
    memory is allocated for it."""

    connections_max: int = setting(10_000, unit="connections", range=(1, 1 << 20), upstream=None)
    """Connections that a server keeps open; further ones are closed as soon as they are accepted."""

    server_socket_backlog: int = setting(
        1024, unit="connections", range=(1, 65_535), upstream="serverSocketBacklog"
    )
    """Connections that wait in the kernel to be accepted."""

    server_socket_send_bytes: int = setting(
        0, unit="bytes", range=(0, INT_MAX), upstream="serverSocketSndBufSize"
    )
    """Send buffer of a server's socket; 0 leaves it to the kernel."""

    server_socket_receive_bytes: int = setting(
        0, unit="bytes", range=(0, INT_MAX), upstream="serverSocketRcvBufSize"
    )
    """Receive buffer of a server's socket; 0 leaves it to the kernel."""

    client_socket_send_bytes: int = setting(
        0, unit="bytes", range=(0, INT_MAX), upstream="clientSocketSndBufSize"
    )
    """Send buffer of a client's socket; 0 leaves it to the kernel."""

    client_socket_receive_bytes: int = setting(
        0, unit="bytes", range=(0, INT_MAX), upstream="clientSocketRcvBufSize"
    )
    """Receive buffer of a client's socket; 0 leaves it to the kernel."""

    server_idle_seconds: int = setting(
        120, unit="seconds", range=(1, DAY_S), upstream="serverChannelMaxIdleTimeSeconds"
    )
    """Time without a byte read or written after which a server closes a connection."""

    client_idle_seconds: int = setting(
        120, unit="seconds", range=(1, DAY_S), upstream="clientChannelMaxIdleTimeSeconds"
    )
    """Time without a byte read or written after which a client closes a connection."""

    server_oneway_permits: int = setting(
        256, unit="requests", range=(1, INT_MAX), upstream="serverOnewaySemaphoreValue"
    )
    """One-way requests to clients that a server has not yet passed to the kernel."""

    server_async_permits: int = setting(
        64, unit="requests", range=(1, INT_MAX), upstream="serverAsyncSemaphoreValue"
    )
    """Requests to clients that a server may have in flight."""

    client_oneway_permits: int = setting(
        65_535, unit="requests", range=(1, INT_MAX), upstream="clientOnewaySemaphoreValue"
    )
    """One-way requests that a client has not yet passed to the kernel."""

    client_async_permits: int = setting(
        65_535, unit="requests", range=(1, INT_MAX), upstream="clientAsyncSemaphoreValue"
    )
    """Requests that a client may have in flight."""

    connect_timeout_ms: int = setting(3_000, unit="ms", range=(1, 3_600_000), upstream="connectTimeoutMillis")
    """Timeout of a client's connection attempt."""

    close_socket_on_timeout: bool = setting(True, upstream="clientCloseSocketIfTimeout")
    """Close a client's connection when a call times out that had enough time: the connection may be half
    open."""

    name_server_scan_ms: int = setting(3_000, unit="ms", range=(10, 3_600_000), upstream=None)
    """Interval at which a client tries to connect to every name server."""

    write_high_water_mark_bytes: int = setting(
        1 << 20, unit="bytes", range=(0, INT_MAX), upstream="writeBufferHighWaterMark"
    )
    """Bytes waiting to be written above which a server reads no further request from the connection, and a
    client's calls wait. Upstream leaves it to Netty (64 KiB); one pull response alone has up to 256 KiB."""

    write_low_water_mark_bytes: int = setting(
        256 << 10, unit="bytes", range=(0, INT_MAX), upstream="writeBufferLowWaterMark"
    )
    """Bytes waiting to be written at which the connection resumes. Upstream leaves it to Netty (32 KiB)."""

    write_backlog_max_bytes: int = setting(64 << 20, unit="bytes", range=(1, INT_MAX), upstream=None)
    """Bytes waiting to be written above which the connection is dropped, because its peer does not read."""

    requests_max: int = setting(4_096, unit="requests", range=(1, 1 << 20), upstream=None)
    """Requests of one connection in flight; at this number, no more are read from the connection. Held
    requests, such as long polls, have limits of their own and do not count."""

    held_bytes_max: int = setting(1 << 30, unit="bytes", range=(1 << 16, 1 << 40), upstream=None)
    """Bytes that all connections of a server may hold: incomplete or unanswered requests, and responses that
    are not written yet. Above the limit, connections that hold more than their equal share wait. After 1 s
    above it, or at 125 % of it, the largest ones that make no progress are dropped."""

    shutdown_gracefully: bool = setting(False, upstream="enableShutdownGracefully")
    """While a server shuts down, answer new requests of clients above 5.3.1 with GO_AWAY (1500), so that they
    connect to another server."""

    shutdown_wait_seconds: int = setting(
        30, unit="seconds", range=(0, DAY_S), upstream="shutdownWaitTimeSeconds"
    )
    """With `shutdown_gracefully`, how long a server answers GO_AWAY before it closes."""

    reconnect_on_go_away: bool = setting(True, upstream="enableReconnectForGoAway")
    """A client that receives GO_AWAY opens a new connection."""

    retry_on_go_away: bool = setting(True, upstream="enableTransparentRetry")
    """A client that receives GO_AWAY retries the request on the new connection."""

    def __post_init__(self) -> None:
        check(self)
        if self.write_low_water_mark_bytes > self.write_high_water_mark_bytes:
            raise ConfigError("write_low_water_mark_bytes", "is above the high water mark", "lower it")
        if self.write_high_water_mark_bytes > self.write_backlog_max_bytes:
            raise ConfigError(
                "write_high_water_mark_bytes", "is above write_backlog_max_bytes", "lower it, or raise that"
            )


@settings_class
class TlsConfig:
    """TLS of servers and clients, including bookies. Files are PEM; upstream's names: `tls.properties`."""

    server_mode: str = setting(
        "permissive",
        choices={"disabled": "disabled", "permissive": "permissive", "enforcing": "enforcing"},
        upstream="tls.server.mode",
    )
    """`disabled`: no TLS. `permissive`: TLS and plain connections on one port, distinguished by their first
    byte; TLS needs a certificate. `enforcing`: TLS only."""

    server_need_client_auth: str = setting(
        "none",
        choices={"none": "none", "optional": "optional", "require": "require"},
        upstream="tls.server.need.client.auth",
    )
    """Whether a server requests a client certificate. It must be signed by an authority in
    `server_trust_cert_path`."""

    server_cert_path: str = setting("", upstream="tls.server.certPath")
    """Certificate chain of a server."""

    server_key_path: str = setting("", upstream="tls.server.keyPath")
    """Private key of a server."""

    server_key_password: str = setting("", upstream="tls.server.keyPassword")
    """Password of the server's private key; never logged."""

    server_trust_cert_path: str = setting("", upstream="tls.server.trustCertPath")
    """Certificates of the authorities that a server trusts for client certificates."""

    client_enabled: bool = setting(False, upstream="tls.enable")
    """Clients use TLS."""

    client_auth_server: bool = setting(True, upstream="tls.client.authServer")
    """Clients verify the server's certificate. Upstream's default is off."""

    client_check_host_name: bool = setting(True, upstream=None)
    """Clients verify that the certificate names the host they connected to. Upstream never does."""

    client_cert_path: str = setting("", upstream="tls.client.certPath")
    """Certificate chain of a client, for servers that request one."""

    client_key_path: str = setting("", upstream="tls.client.keyPath")
    """Private key of a client."""

    client_key_password: str = setting("", upstream="tls.client.keyPassword")
    """Password of the client's private key; never logged."""

    client_trust_cert_path: str = setting("", upstream="tls.client.trustCertPath")
    """Certificates of the authorities that a client trusts. Empty: those of the system."""

    test_mode: bool = setting(False, upstream="tls.test.mode.enable")
    """Clients trust every server. Upstream's default is on; here it must be set explicitly. A server needs
    its own certificate in this mode too."""

    handshake_timeout_ms: int = setting(10_000, unit="ms", range=(1, 3_600_000), upstream=None)
    """Timeout of a TLS handshake and, on a port with TLS and plain connections, of the first byte. After it
    the connection is dropped."""

    def __post_init__(self) -> None:
        check(self)
        for side in ("server", "client"):
            cert, key = getattr(self, f"{side}_cert_path"), getattr(self, f"{side}_key_path")
            if bool(cert) != bool(key):
                raise ConfigError(f"{side}_cert_path", f"needs {side}_key_path, and the other way round")
        if self.server_mode == "enforcing" and not self.server_cert_path:
            raise ConfigError(
                "server_mode", "enforcing without a certificate", "set server_cert_path and server_key_path"
            )
        if self.server_need_client_auth != "none" and not self.server_trust_cert_path:
            raise ConfigError("server_need_client_auth", "needs server_trust_cert_path", "name the authority")

    def __repr__(self) -> str:  # without the passwords of the keys
        return f"TlsConfig(server_mode={self.server_mode!r}, client_enabled={self.client_enabled})"
