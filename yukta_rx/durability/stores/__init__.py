"""Store Protocols with numbered guarantees; no code that stores. Feature: DUR-05."""
