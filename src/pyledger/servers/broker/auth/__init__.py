"""Access control of a broker, and the gate before requests of operators."""
