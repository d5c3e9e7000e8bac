"""The command line: one file per command, each parses, calls a room, renders and sets the exit code."""
