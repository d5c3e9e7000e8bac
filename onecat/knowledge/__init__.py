"""Knowledge: tables in YAML, every row with its source.

In: nothing. Out: the files beside this one, read by the rooms that use them. A fact changes here, never in code.
"""
