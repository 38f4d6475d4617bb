"""What outlives a run: store Protocols and their backends. Feature: DUR-05."""
