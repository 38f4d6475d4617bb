"""Testing kit: virtual time, subscribers and publishers under test control, the rules as checks.

Feature: EXT-01.
"""
