"""For all tests: property tests have no deadline, since a busy machine is not a fault."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("onecat", settings.get_profile("ci" if os.environ.get("CI") else "default"), deadline=None)
settings.load_profile("onecat")
