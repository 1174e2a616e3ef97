"""Authorization: users, the permissions that a request needs, and those of a user."""
