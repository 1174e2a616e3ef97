r"""The properties of a message as bytes: `name \x01 value \x02`, repeated, UTF-8.

Upstream 5.x closes the last pair with `\x02`, 4.9 does not. An item without a name or without a value is
dropped when read; a value may contain `\x01`.

Source: RocketMQ common/.../MessageDecoder.java (messageProperties2String, string2messageProperties).
"""

from collections.abc import Mapping

from pyledger.errors import IllegalMessageError, RecordTooLargeError

NAME_END = "\x01"
VALUE_END = "\x02"
PROPERTIES_SIZE_MAX_BYTES = 32767


def encode_properties(properties: Mapping[str, str], *, close_last: bool = True) -> bytes:
    r"""Encode properties in the order of the mapping.

    Args:
        properties: Names and values, neither empty.
        close_last: Write the last `\x02`, as 5.x does.

    Raises:
        IllegalMessageError: a pair would not come back as it is.
        RecordTooLargeError: more than 32,767 bytes.
    """
    for name, value in properties.items():
        if not name or not value:
            raise IllegalMessageError(
                f"property {name!r} is empty, and readers drop empty properties; leave it out"
            )
        if NAME_END in name or VALUE_END in name or VALUE_END in value:
            raise IllegalMessageError(f"property {name!r} contains a separator (\\x01 or \\x02)")
    text = VALUE_END.join(name + NAME_END + value for name, value in properties.items())
    try:
        encoded = (text + VALUE_END if close_last and text else text).encode()
    except UnicodeEncodeError as error:
        raise IllegalMessageError(f"a property is not valid Unicode: {error.reason}") from None
    if len(encoded) > PROPERTIES_SIZE_MAX_BYTES:
        raise RecordTooLargeError("properties", len(encoded), PROPERTIES_SIZE_MAX_BYTES)
    return encoded


def decode_properties(encoded: bytes) -> dict[str, str]:
    """Decode properties as upstream's reader does; never fails. Of a name given twice the last one counts."""
    found = {}
    for item in encoded.decode(errors="replace").split(VALUE_END):
        name, separator, value = item.partition(NAME_END)
        if separator and name and value:
            found[name] = value
    return found
