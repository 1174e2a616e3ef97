"""Settings of remoting: servers, clients, TLS. Defaults are upstream's; where not, the docstring says why.

Source: RocketMQ remoting/.../NettyServerConfig.java, NettyClientConfig.java, NettySystemConfig.java,
TlsSystemConfig.java.
"""

from dataclasses import dataclass

from pyledger.config.fields import check, setting
from pyledger.errors import ConfigError

INT_MAX = (1 << 31) - 1
DAY_S = 86_400
FRAME_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NetConfig:
    """How connections of a server and of a client behave, and what bounds them."""

    frame_max_bytes: int = setting(
        FRAME_BYTES_MAX,
        unit="bytes",
        range=(1024, FRAME_BYTES_MAX),
        upstream="com.rocketmq.remoting.frameMaxLength",
    )
    """Longest frame, its length word included. A longer one closes its connection before anything is
    allocated for it."""

    connections_max: int = setting(10_000, unit="connections", range=(1, 1 << 20), upstream=None)
    """Connections that a server keeps at once; one more is closed as soon as it is accepted."""

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
    """A server closes a connection after so long without a byte read or written."""

    client_idle_seconds: int = setting(
        120, unit="seconds", range=(1, DAY_S), upstream="clientChannelMaxIdleTimeSeconds"
    )
    """A client closes a connection after so long without a byte read or written."""

    server_oneway_permits: int = setting(
        256, unit="requests", range=(1, INT_MAX), upstream="serverOnewaySemaphoreValue"
    )
    """One-way requests to clients that a server has not handed to the kernel yet."""

    server_async_permits: int = setting(
        64, unit="requests", range=(1, INT_MAX), upstream="serverAsyncSemaphoreValue"
    )
    """Requests to clients whose answer a server waits for."""

    client_oneway_permits: int = setting(
        65_535, unit="requests", range=(1, INT_MAX), upstream="clientOnewaySemaphoreValue"
    )
    """One-way requests that a client has not handed to the kernel yet."""

    client_async_permits: int = setting(
        65_535, unit="requests", range=(1, INT_MAX), upstream="clientAsyncSemaphoreValue"
    )
    """Requests whose answer a client waits for."""

    connect_timeout_ms: int = setting(3_000, unit="ms", range=(1, 3_600_000), upstream="connectTimeoutMillis")
    """How long a client tries to connect."""

    close_socket_on_timeout: bool = setting(True, upstream="clientCloseSocketIfTimeout")
    """A call that timed out although it had enough time closes its connection: it may be half open."""

    name_server_scan_ms: int = setting(3_000, unit="ms", range=(10, 3_600_000), upstream=None)
    """Pause between two attempts of a client to reach every name server."""

    write_high_water_mark_bytes: int = setting(
        1 << 20, unit="bytes", range=(0, INT_MAX), upstream="writeBufferHighWaterMark"
    )
    """With more than this to be written, a server reads no further request of the connection, and a client's
    calls wait. Upstream leaves it to Netty (64 KiB); one pull answer alone has up to 256 KiB."""

    write_low_water_mark_bytes: int = setting(
        256 << 10, unit="bytes", range=(0, INT_MAX), upstream="writeBufferLowWaterMark"
    )
    """With no more than this to be written, the connection goes on. Upstream leaves it to Netty (32 KiB)."""

    write_backlog_max_bytes: int = setting(64 << 20, unit="bytes", range=(1, INT_MAX), upstream=None)
    """A connection with more than this to be written is cut: its peer does not read."""

    requests_max: int = setting(4_096, unit="requests", range=(1, 1 << 20), upstream=None)
    """Requests of one connection in work at once; with so many it is not read from. Held requests, such as
    a long poll, do not count: whoever holds them bounds them."""

    held_bytes_max: int = setting(1 << 30, unit="bytes", range=(1 << 16, 1 << 40), upstream=None)
    """What connections of a server may hold together: requests that are not whole or not answered, answers
    that are not written. With more, those that hold more than the limit divided by their number wait; where
    it stays so for 1 s, or a quarter more is held, those that hold most without getting on are cut."""

    shutdown_gracefully: bool = setting(False, upstream="enableShutdownGracefully")
    """A server that ends answers new requests of clients above 5.3.1 with GO_AWAY (1500), so that they
    connect anew, elsewhere."""

    shutdown_wait_seconds: int = setting(
        30, unit="seconds", range=(0, DAY_S), upstream="shutdownWaitTimeSeconds"
    )
    """How long a server with `shutdown_gracefully` goes on to answer GO_AWAY before it closes."""

    reconnect_on_go_away: bool = setting(True, upstream="enableReconnectForGoAway")
    """A client that is told GO_AWAY opens a fresh connection."""

    retry_on_go_away: bool = setting(True, upstream="enableTransparentRetry")
    """A client that was told GO_AWAY sends the request once more, on the fresh connection."""

    def __post_init__(self) -> None:
        check(self)
        if self.write_low_water_mark_bytes > self.write_high_water_mark_bytes:
            raise ConfigError("write_low_water_mark_bytes", "is above the high water mark", "lower it")
        if self.write_high_water_mark_bytes > self.write_backlog_max_bytes:
            raise ConfigError(
                "write_high_water_mark_bytes", "is above write_backlog_max_bytes", "lower it, or raise that"
            )


# A repr would show the passwords of the keys.
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TlsConfig:
    """TLS of servers and clients, bookies' too. PEM files; upstream's names are those of `tls.properties`."""

    server_mode: str = setting(
        "permissive",
        choices={"disabled": "disabled", "permissive": "permissive", "enforcing": "enforcing"},
        upstream="tls.server.mode",
    )
    """`disabled`: a server speaks no TLS. `permissive`: TLS and plain connections on one port, told apart by
    their first byte; TLS needs a certificate. `enforcing`: nothing but TLS."""

    server_need_client_auth: str = setting(
        "none",
        choices={"none": "none", "optional": "optional", "require": "require"},
        upstream="tls.server.need.client.auth",
    )
    """Whether a server asks a client for a certificate, which `server_trust_cert_path` must vouch for."""

    server_cert_path: str = setting("", upstream="tls.server.certPath")
    """Certificate chain of a server."""

    server_key_path: str = setting("", upstream="tls.server.keyPath")
    """Private key of a server."""

    server_key_password: str = setting("", upstream="tls.server.keyPassword")
    """Password of the server's key; never logged."""

    server_trust_cert_path: str = setting("", upstream="tls.server.trustCertPath")
    """Certificates of the authorities that a server believes about clients."""

    client_enabled: bool = setting(False, upstream="tls.enable")
    """A client speaks TLS."""

    client_auth_server: bool = setting(True, upstream="tls.client.authServer")
    """A client checks the server's certificate. Upstream's default is not to."""

    client_check_host_name: bool = setting(True, upstream=None)
    """A client checks that the certificate names the host it connected to. Upstream never does."""

    client_cert_path: str = setting("", upstream="tls.client.certPath")
    """Certificate chain of a client, for servers that ask for one."""

    client_key_path: str = setting("", upstream="tls.client.keyPath")
    """Private key of a client."""

    client_key_password: str = setting("", upstream="tls.client.keyPassword")
    """Password of the client's key; never logged."""

    client_trust_cert_path: str = setting("", upstream="tls.client.trustCertPath")
    """Certificates of the authorities that a client believes; empty: those of the system."""

    test_mode: bool = setting(False, upstream="tls.test.mode.enable")
    """A client trusts every server. Upstream's default is on; here it must be asked for. A server needs its
    own certificate in this mode too."""

    handshake_timeout_ms: int = setting(10_000, unit="ms", range=(1, 3_600_000), upstream=None)
    """A connection is cut when its handshake takes longer, or its first byte, while TLS and plain
    connections share a port."""

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

    def __repr__(self) -> str:
        return f"TlsConfig(server_mode={self.server_mode!r}, client_enabled={self.client_enabled})"
