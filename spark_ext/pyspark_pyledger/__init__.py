"""The Spark data source `pyledger`: Spark finds it by this package's name, nothing has to be registered.

Spark imports every top-level `pyspark_*` module to find its sources. If one raises, the search fails for all
of them, so this module never raises.
"""

try:
    from pyspark_pyledger.source import LedgerSource as DefaultSource
except ImportError as error:
    import warnings

    warnings.warn(f"the pyledger source is not available: {error}", stacklevel=1)
else:
    __all__ = ["DefaultSource"]
