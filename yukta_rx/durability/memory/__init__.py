"""Stores in memory: quick, bounded, and gone with the process. Feature: DUR-05."""
