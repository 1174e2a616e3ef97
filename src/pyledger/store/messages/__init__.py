"""The message store: open, recover, append, flush, dispatch, retention, replicas."""
