"""Handlers, one file per resource; which route calls them says `http.table`. Feature: OBS-01."""
