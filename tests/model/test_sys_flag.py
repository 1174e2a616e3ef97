from pyledger.model.sys_flag import TransactionType, transaction_type


def test_transaction_type_is_read_from_two_bits() -> None:
    kinds = [transaction_type(bits | 0x731) for bits in (0, 4, 8, 12)]
    assert kinds == list(TransactionType)
