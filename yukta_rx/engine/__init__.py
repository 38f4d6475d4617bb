"""The engine: a prepared workflow as live streams, and the run around it. Feature: ENG-02."""
