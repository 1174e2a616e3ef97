"""The search for the place where two logs part finds it, with few questions."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.ha.log_divergence import TailSearch


@given(st.integers(0, 500).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count))))
def test_the_last_common_record_is_found(facts: tuple[int, int]) -> None:
    count, common = facts
    offsets = [number * 100 for number in range(count)]
    search, questions = TailSearch(offsets), 0
    while (question := search.next_offset) is not None:
        questions += 1
        search.answer(question < common * 100)
    assert search.last_common == (offsets[common - 1] if common else None)
    assert questions <= 2 * (count - common + 1).bit_length() + 2


def test_logs_that_agree_need_one_comparison() -> None:
    search = TailSearch(range(0, 1000, 10))
    assert search.next_offset == 990
    search.answer(True)
    assert (search.next_offset, search.last_common) == (None, 990)
