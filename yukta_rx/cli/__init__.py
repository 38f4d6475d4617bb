"""The `yukta` command."""
