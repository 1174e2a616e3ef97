"""Header fields as one JSON object: the quick way writes what the careful one does."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from pyledger.wire.fastjson import quoted, quoted_map


@given(st.dictionaries(st.text(), st.text()))
@example({"i": "KEYS\x01k\x02"})
@example({"i": "\x7f\u2028", "\x1f": "a"})
def test_map_is_written_as_its_parts(texts: dict[str, str]) -> None:
    entries = [f"{quoted(name)}:{quoted(value)}" for name, value in texts.items()]
    assert quoted_map(texts) == f"{{{','.join(entries)}}}"
    assert json.loads(quoted_map(texts)) == texts
