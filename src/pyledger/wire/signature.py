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

Buffer = bytes | bytearray | memoryview


def sign(ext_fields: Mapping[str, str], body: Buffer, secret_key: str) -> str:
    """The signature of a request whose fields are all in `ext_fields`, in Base64."""
    ordered = sorted(ext_fields.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
    text = "".join(value for name, value in ordered if name != SIGNATURE)
    digest = hmac.new(secret_key.encode(), text.encode(), hashlib.sha1)
    digest.update(body)
    return base64.b64encode(digest.digest()).decode("ascii")
