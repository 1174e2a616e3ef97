"""The request for TLS: the only one that is sent unencrypted, even for version 2.

Source: BookKeeper proto/PerChannelBookieClient.java (initiateTLS).
"""

from pyledger.errors import LedgerFrameError
from pyledger.protocol.bookkeeper.messages import StartTlsRequest, StartTlsResponse, Status
from pyledger.wire.bookkeeper import version3
from pyledger.wire.bookkeeper.protocol_version import LENGTH_BYTES

_BODY = version3.encode_request(StartTlsRequest(txn_id=0))
TLS_REQUEST = len(_BODY).to_bytes(LENGTH_BYTES, "big") + _BODY
"""A whole frame."""


def check_tls_answer(frame: memoryview) -> None:
    """Make sure that TLS follows.

    Raises:
        LedgerFrameError: It does not.
    """
    answer = version3.decode_response(frame)
    if not isinstance(answer, StartTlsResponse) or answer.status is not Status.EOK:
        raise LedgerFrameError(f"it speaks no TLS ({answer.status.name})")
