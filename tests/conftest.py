"""For all tests: property tests have no deadline, and what tests start can be interrupted.

A busy machine is not a fault. A shell starts what it puts into the background with Ctrl-C ignored, and all that such
a test run starts would inherit that.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("onecat", settings.get_profile("ci" if os.environ.get("CI") else "default"), deadline=None)
settings.load_profile("onecat")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
