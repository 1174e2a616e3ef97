"""Builds a response with a list of topics in steps, between which other connections are served."""

import asyncio
import heapq
from collections.abc import Iterable
from itertools import groupby, islice

from pyledger.protocol.namesrv.route_rules import TOPICS_AT_ONCE
from pyledger.wire.remoting.bodies.topic_config import encode_topic_names, topic_list_of


async def topic_list(parts: Iterable[list[str]]) -> bytes:
    """Return the response with a list of topics, sorted, without duplicates.

    Args:
        parts: The names, in small parts; a name may occur twice.
    """
    ordered = []
    for part in parts:
        ordered.append(sorted(part))
        await asyncio.sleep(0)
    names = (name for name, _ in groupby(heapq.merge(*ordered)))
    encoded = []
    while some := list(islice(names, TOPICS_AT_ONCE)):
        encoded.append(encode_topic_names(some))
        await asyncio.sleep(0)
    return topic_list_of(encoded)
