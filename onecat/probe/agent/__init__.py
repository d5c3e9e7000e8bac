"""Agent: the program that runs on the host. It is sent as text and never imported by onecat.

In: command line options. Out: one JSON document in the form of onecat/facts.py on standard output.
"""
