"""Stores in files: what was acknowledged outlives the process. Feature: DUR-05."""
