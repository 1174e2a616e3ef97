"""The signature of a request: HMAC-SHA1 over the values of its fields and its body.

The order is that of the names. Only values are covered, without anything between them.

Source: RocketMQ acl/.../AclUtils.java, AclSigner.java, AclClientRPCHook.java.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"

JOINED_BYTES_MAX = 64 << 10
"""Bodies up to this size are copied, which costs less than a digest in two steps."""

Buffer = bytes | bytearray | memoryview


def sign(ext_fields: Mapping[str, str], body: Buffer, secret_key: str) -> str:
    """The signature of a request whose fields are all in `ext_fields`, in Base64."""
    names = sorted(ext_fields) if "".join(ext_fields).isascii() else sorted(ext_fields, key=code_units)
    text = "".join([ext_fields[name] for name in names if name != SIGNATURE]).encode()
    if len(body) <= JOINED_BYTES_MAX:
        digest = hmac.digest(secret_key.encode(), b"".join((text, body)), "sha1")
    else:
        whole = hmac.new(secret_key.encode(), text, hashlib.sha1)
        whole.update(body)
        digest = whole.digest()
    return base64.b64encode(digest).decode("ascii")


def code_units(name: str) -> bytes:
    """What Java compares texts by."""
    return name.encode("utf-16-be", "surrogatepass")
