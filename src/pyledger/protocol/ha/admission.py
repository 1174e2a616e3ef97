"""Which connections may copy a master's log.

The log is all messages of all topics, so a connection needs one of

* an address in `allowed_slaves`, which also admits slaves without TLS;
* a client certificate, checked by the TLS handshake, with a name of `slave_certificates`;
* without access control and `slave_certificates`: an address of this machine, or one that the name servers
know as a slave's. With TLS `enforcing`, such a connection must use TLS.

Differs: upstream sends the log to any client.
"""

import ipaddress
from collections.abc import Collection

from pyledger.config.ha import HaConfig, listed, networks_of


class Admission:
    """The admission rules of one master."""

    def __init__(self, config: HaConfig, *, access_control: bool = False, tls_only: bool = False) -> None:
        """Create the rules from settings.

        Args:
            config: Contains the allowed slaves.
            access_control: Requests to the broker must be signed.
            tls_only: Requests to the broker must be sent over TLS.
        """
        self._networks = networks_of(config.allowed_slaves)
        self.certificates = frozenset(listed(config.slave_certificates))
        """Names in certificates of slaves; empty: certificates are not used."""
        self.wants_proof = access_control or bool(self.certificates)
        """An address of this machine, or of a registered slave, is not sufficient."""
        self._tls_only = tls_only

    @property
    def anyone(self) -> bool:
        """Whether any connection could be admitted."""
        return not self.wants_proof or bool(self._networks) or bool(self.certificates)

    def names_address(self, host: str) -> bool:
        """Whether an address is in `allowed_slaves`."""
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def rejection(self, *, named: bool, secure: bool, names: Collection[str]) -> str:
        """Return why a connection with a known address or a certificate is rejected; empty: it is not.

        Args:
            named: `names_address` of its address.
            secure: It uses TLS.
            names: The names in its verified certificate.
        """
        if named:
            return ""
        if self.wants_proof:
            proven = secure and not self.certificates.isdisjoint(names)
            return "" if proven else "it shows no certificate that slave_certificates names"
        if self._tls_only and not secure:
            return "it speaks no TLS, and allowed_slaves does not name it"
        return ""
