"""Bottleneck: which one thing holds a server back, read from a row of samples of one host.

In: `Sample` records of onecat.observe.metrics, in order of time. Out: a `Reading`: what it is, how sure that is, one
sentence, and the numbers behind it. Each kind of bottleneck is a module of rules/, found by itself.
"""

from onecat.observe.bottleneck.reading import read_bottleneck
from onecat.observe.bottleneck.records import BOTTLENECKS, Bottleneck, Reading

__all__ = ["BOTTLENECKS", "Bottleneck", "Reading", "read_bottleneck"]
