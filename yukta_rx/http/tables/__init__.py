"""The routes, one module per group; `http/table.py` joins them. Feature: OBS-01."""
