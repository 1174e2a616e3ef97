"""The columns as Spark types, and the check of a user's schema."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyledger.errors import ConfigError

_NULLABLE = ("tags", "keys")
_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "storeTimestamp": TimestampType(),
    "bornTimestamp": TimestampType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "physicalOffset": LongType(),
    "storeSize": IntegerType(),
    "layout": IntegerType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "msgId": StringType(),
    "bodyCRC": IntegerType(),
    "bodyLength": IntegerType(),
    "tagsCode": LongType(),
    "preparedTransactionOffset": LongType(),
}
DEFAULT_COLUMNS = tuple(_TYPES)[:9]


def schema_of(columns: tuple[str, ...] | None) -> StructType:
    """Return the Spark schema of some columns, in their order; None means the default columns.

    Raises:
        ConfigError: a column is unknown or named twice.
    """
    names = columns or DEFAULT_COLUMNS
    for name in names:
        if name not in _TYPES:
            raise ConfigError("columns", f"there is no column {name!r}", f"known are {', '.join(_TYPES)}")
    if len(set(names)) < len(names):
        raise ConfigError("columns", f"{', '.join(names)} names a column twice")
    return StructType([StructField(name, _TYPES[name], name in _NULLABLE) for name in names])


def check_schema(given: StructType) -> None:
    """Check that a user's schema has known columns with their types. Nullability may differ.

    Raises:
        ConfigError: a field is unknown or has another type.
    """
    for field in given.fields:
        wanted = _TYPES.get(field.name)
        if wanted is None:
            raise ConfigError(
                "schema", f"there is no column {field.name!r}", f"known are {', '.join(_TYPES)}"
            )
        if field.dataType.simpleString() != wanted.simpleString():
            raise ConfigError(
                "schema",
                f"{field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}",
                "read it as it is and cast it in the query",
            )
