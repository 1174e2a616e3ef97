"""Signatures: a recorded peer's, and what they cover."""

import base64
import hashlib
import hmac

from pyledger.wire.remoting.command import decode
from pyledger.wire.remoting.framing import FrameDecoder
from pyledger.wire.remoting.signature import SIGNATURE, sign
from tests.golden.remoting_frames import recorded_frames


def test_signatures_of_a_recorded_client() -> None:
    """The C++ client signs with an empty key when it has none."""
    count = 0
    for frame in recorded_frames():
        signature = frame.described["extFields"].get(SIGNATURE)
        if signature is not None:
            [view] = FrameDecoder().feed(frame.data)
            command = decode(view)
            assert sign(command.ext_fields, command.body, "") == signature, frame.name
            count += 1
    assert count > 10


def test_values_are_covered_in_the_order_of_names() -> None:
    fields = {"topic": "T", "AccessKey": "me", "a": "4", "Signature": "old"}
    wanted = hmac.new(b"secret", b"me4Tbody", hashlib.sha1).digest()
    assert sign(fields, b"body", "secret") == base64.b64encode(wanted).decode()
