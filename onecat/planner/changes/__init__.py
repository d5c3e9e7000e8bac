"""What would make a model fit that does not: each change is tried on the memory model, and told with what it yields."""

from onecat.planner.changes.nearest import nearest_changes
from onecat.planner.changes.records import Attempt, Change
from onecat.planner.changes.words import told_layout, told_offload

__all__ = ["Attempt", "Change", "nearest_changes", "told_layout", "told_offload"]
