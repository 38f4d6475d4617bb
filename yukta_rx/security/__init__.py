"""Who may do what, and what a configuration may read."""
