"""Writes onecat's sampling agent as one file for a machine without onecat: nothing but Python 3.6 is needed there.

    python tools/sampling_agent.py > sampling_agent.py

There, with a vLLM at port 8000 and for 60 seconds:

    python3 sampling_agent.py --interval 0.5 --count 120 --url http://127.0.0.1:8000/metrics > recording.jsonl

Back here: onecat top --replay recording.jsonl
"""

from __future__ import annotations

import sys

from onecat.live.top.collecting import wanted_metrics
from onecat.probe.sampling import sampling_program


def main() -> None:
    options = ["--no-input"]
    for name in wanted_metrics():
        options += ["--keep", name]
    head = f"import sys\nsys.argv[1:1] = {options!r}\n"
    sys.stdout.buffer.write(head.encode() + sampling_program())


if __name__ == "__main__":
    main()
