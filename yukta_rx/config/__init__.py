"""The settings: declared once, read from file, environment and overrides, checked together."""
