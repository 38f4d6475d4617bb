"""The HTTP server: one table of routes, problem bodies, event streams. Features: OBS-01, SEC-01."""
