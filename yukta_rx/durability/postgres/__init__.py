"""Stores on PostgreSQL; imported only where a setting asks for them. Feature: DUR-04."""
