"""Who may do what: users, what a request needs, and what a user is given."""
