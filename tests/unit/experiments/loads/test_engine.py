"""What sends the load is ended when it does not stop."""

from __future__ import annotations

import sys
import time

import pytest

from onecat.experiments.loads import CutShort
from onecat.experiments.loads.cores import Pinning
from onecat.experiments.loads.engine import EngineLoadDriver
from onecat.experiments.records import Arrivals, Endpoint, Workload
from onecat.hosts.conversation import LocalConversation

# As the program in the engine's runtime, it ends with its input, and until then this one hears nothing.
PROGRAM = """
import json, sys
flags = [word for word in sys.argv[1:]]
print(json.dumps({"ready": {"engine": "0", "python": "3", "pid": 1, "cores": [0], "flags": flags}}), flush=True)
for line in sys.stdin:
    pass
"""
FLAGS = (
    "--backend --base-url --endpoint --model --served-model-name --tokenizer --dataset-name --random-input-len "
    "--random-output-len --random-range-ratio --num-prompts --seed --request-id-prefix --disable-tqdm "
    "--ready-check-timeout-sec --temperature --save-detailed --ignore-eos --max-concurrency"
)


class Interrupted(LocalConversation):
    """Ctrl-C comes while the block runs, and again while it is being stopped."""

    heard = 0

    def line(self, timeout: float | None = None) -> bytes | None:
        self.heard += 1
        if self.heard > 1:
            raise KeyboardInterrupt
        return super().line(30)


def test_a_second_ctrl_c_leaves_nothing_that_sends() -> None:
    with Interrupted([sys.executable, "-c", PROGRAM, *FLAGS.split()], "here") as conversation:
        driver = EngineLoadDriver(lambda: conversation, where="here", runtime="a test", pinning=Pinning(None, ""))
        with pytest.raises(CutShort) as cut:
            driver.run(Endpoint("a", "http://127.0.0.1:1", "m", tokenizer="/t"), Workload(), Arrivals(2), number=0)
        assert cut.value.block is None
        limit = time.monotonic() + 10
        while conversation.exit_code is None and time.monotonic() < limit:
            time.sleep(0.01)
        assert conversation.exit_code == 0
        assert conversation.heard == 3
