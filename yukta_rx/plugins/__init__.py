"""What a node type is made of: its contract, its configuration, the context it runs in."""
