"""The broker's rules between client and store: who may send and pull what, when, and what happens next."""
