"""JSON bodies of requests and responses, one file for each subject."""
