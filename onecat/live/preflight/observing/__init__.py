"""What can be observed of a deployment that runs: a module has a record and the function that gathers it.

A new observation is a new file here; it is made where a check `needs` its record.
"""

from onecat.live.preflight.observing.registry import Observer, observer, observers

__all__ = ["Observer", "observer", "observers"]
