"""Authentication and authorization of requests to a broker."""
