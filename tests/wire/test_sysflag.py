import pytest

from pyledger.wire.sysflag import Compression, TransactionType, compression, transaction_type


@pytest.mark.parametrize(
    ("sys_flag", "kind"), [(0, None), (0x1, 0), (0x101, 1), (0x201, 2), (0x301, 3), (0x300, None), (0x3F1, 3)]
)
def test_compression_is_read_from_three_bits(sys_flag: int, kind: int | None) -> None:
    assert compression(sys_flag) == (None if kind is None else Compression(kind))


def test_unknown_compression_is_an_error() -> None:
    with pytest.raises(ValueError, match="7 is not a valid Compression"):
        compression(0x701)


def test_transaction_type_is_read_from_two_bits() -> None:
    kinds = [transaction_type(bits | 0x731) for bits in (0, 4, 8, 12)]
    assert kinds == list(TransactionType)
