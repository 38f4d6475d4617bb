"""Workflow definitions made ready to run: parsed, validated, prepared."""
