"""A message of the reader in the form of its golden line."""

import hashlib
from typing import Any

from pyledger._core import StoredMessage


def as_line(message: StoredMessage) -> dict[str, Any]:
    """Every field of a message; what upstream leaves out for some kinds is left out here."""
    found = {
        "kind": "message" if message.is_indexed else "unindexed",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "layout": message.layout,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyLength": message.body_length,
        "bodyCRC": message.body_crc,
        "bodySha256": hashlib.sha256(message.body_view).hexdigest(),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    if message.is_indexed:
        found["tagsCode"] = message.tags_code
    if message.sys_flag & 1:
        found["plainSha256"] = hashlib.sha256(message.plain_body).hexdigest()
    return found
