"""What onecat computes of a GPU's memory, next to what real engines logged: one line for each number.

Reads shared/cases/memory_truth.jsonl beside the project. Exit code 1 when the median error of the KV cache's sizes is
above 3 %, or one above 10 %.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.planner.memory.truth import TRUTH, compared, table  # noqa: E402


def main() -> int:
    if not TRUTH.is_file():
        print(f"{TRUTH} is not there")
        return 1
    found, excluded = compared()
    print(table(found, excluded))
    errors = [each.error for each in found if each.what in ("kv", "tokens", "largest") and each.outside is None]
    print(f"KV cache: {len(errors)} numbers, median error {median(errors):.2%}, worst {max(errors):.2%}")
    loads = [each.error for each in found if each.what == "load"]
    print(f"model load: {len(loads)} numbers, median error {median(loads):.2%}, worst {max(loads):.2%}")
    return int(median(errors) > 0.03 or max(errors) > 0.10)


if __name__ == "__main__":
    sys.exit(main())
