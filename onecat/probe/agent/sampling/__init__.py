"""The sampling agent: the program that runs on a host as long as somebody looks, and tells how it is again and again.

In: command line options (main.py). Out: one JSON object a line on standard output, in the form that
onecat.live.top.samples reads. It ends when its standard input does.
"""
