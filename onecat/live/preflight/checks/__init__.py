"""The checks of preflight: one file for each, a function with doctor's `check` decorator."""
