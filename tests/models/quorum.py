"""The quorum index three ways: by definition, DLedger's formula, and etcd's."""


def by_definition(water_marks: list[int]) -> int:
    """Highest water mark that more than half of the voters reach."""
    majority = len(water_marks) // 2 + 1
    return max(mark for mark in water_marks if sum(other >= mark for other in water_marks) >= majority)


def descending(water_marks: list[int]) -> int:
    """DLedger: sort downwards, take element n // 2."""
    return sorted(water_marks, reverse=True)[len(water_marks) // 2]


def ascending(water_marks: list[int]) -> int:
    """etcd: sort upwards, take element n - (n // 2 + 1)."""
    n = len(water_marks)
    return sorted(water_marks)[n - (n // 2 + 1)]
