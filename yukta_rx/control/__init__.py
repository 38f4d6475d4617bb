"""The control plane: starts, commands and reads of runs. Feature: CTL-01."""
