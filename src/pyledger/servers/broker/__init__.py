"""The broker: takes messages from producers into its store, and gives them to consumers."""
