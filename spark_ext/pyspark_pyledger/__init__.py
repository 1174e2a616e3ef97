"""What Spark finds by name: the data source `pyledger`."""
