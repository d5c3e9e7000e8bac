"""The checks, one file per area. A function here that carries the decorator of onecat.doctor.registry is a check.

In: a Context. Out: Verdicts, at least one.
"""
