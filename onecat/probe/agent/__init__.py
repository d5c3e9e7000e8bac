"""Agent: the program that runs on a host. It is sent there and never imported by the rest of onecat.

In: command line options. Out: one JSON document in the form of onecat.facts on standard output.
onecat.probe.program packs boot.py, the other modules here and pynvml into one text.
"""
