"""The Spark data source `pyledger`: Spark finds it by this package's name, nothing has to be registered.

Spark imports every top-level `pyspark_*` module when it looks for a source, and one that raises spoils the
search for all: so this one never does.
"""

try:
    from pyspark_pyledger.source import LedgerSource as DefaultSource
except ImportError as error:
    import warnings

    warnings.warn(f"the pyledger source is not available: {error}", stacklevel=1)
else:
    __all__ = ["DefaultSource"]
