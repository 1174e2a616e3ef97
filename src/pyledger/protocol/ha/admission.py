"""Which connections may have a master's log.

The log is all messages of all topics, so a connection needs one of

* an address that `allowed_slaves` names: the operator's word, also for slaves that speak no TLS;
* a client certificate, checked by the TLS handshake, with a name of `slave_certificates`;
* where neither access control nor `slave_certificates` ask for more: an address of this machine, or one that
  the name servers know as a slave's. With TLS `enforcing` such a connection must speak TLS.

Differs: upstream gives the log to whoever connects.
"""

import ipaddress
from collections.abc import Collection

from pyledger.config.ha import HaConfig, listed, networks_of


class Admission:
    """The rules of one master."""

    def __init__(self, config: HaConfig, *, access_control: bool = False, tls_only: bool = False) -> None:
        """Rules by the settings.

        Args:
            config: Names the slaves.
            access_control: Requests to the broker must be signed.
            tls_only: Requests to the broker must come over TLS.
        """
        self._networks = networks_of(config.allowed_slaves)
        self.certificates = frozenset(listed(config.slave_certificates))
        """Names in certificates of slaves; none: certificates prove nothing."""
        self.wants_proof = access_control or bool(self.certificates)
        """Neither being on this machine nor being registered is enough."""
        self._tls_only = tls_only

    @property
    def anyone(self) -> bool:
        """Whether any connection could be let in."""
        return not self.wants_proof or bool(self._networks) or bool(self.certificates)

    def names_address(self, host: str) -> bool:
        """Whether `allowed_slaves` names an address."""
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def refusal(self, *, named: bool, secure: bool, names: Collection[str]) -> str:
        """Why a connection is rejected that is known as a slave's, or shows a certificate; empty: it is not.

        Args:
            named: `names_address` of its address.
            secure: It speaks TLS.
            names: Those in its certificate, which was checked.
        """
        if named:
            return ""
        if self.wants_proof:
            proven = secure and not self.certificates.isdisjoint(names)
            return "" if proven else "it shows no certificate that slave_certificates names"
        if self._tls_only and not secure:
            return "it speaks no TLS, and allowed_slaves does not name it"
        return ""
