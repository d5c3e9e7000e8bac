"""Run by the engine's own Python from the repository's root: trains the small model's shape for six steps, three times.

Argument: an empty directory. Prints {whole, again, resumed: SHA-256 of the weights, loss, first_loss}; `resumed` was
ended after step 5, with the state of step 3 on the disk.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch

from tools.small_model import training
from tools.small_model.model import held_out_loss, make_model

TEXT = torch.arange(4000) % 37
SETTINGS = training.Settings(steps=6, rows=2, warm_up=2, examine_every=3)


class Killed(Exception):
    pass


def digest(best: training.Best) -> str:
    content = b"".join(best.weights[name].numpy().tobytes() for name in sorted(best.weights))
    return hashlib.sha256(content).hexdigest()


def train(work: Path) -> training.Best:
    work.mkdir(exist_ok=True)
    return training.train(make_model(64, 0, SETTINGS.seed), TEXT, TEXT[:1000], SETTINGS, work)


def train_and_be_killed(work: Path) -> None:
    step = training._step

    def killing(*arguments: object) -> float:
        if arguments[-1] == 6:
            raise Killed
        return step(*arguments)

    training._step = killing
    try:
        train(work)
    except Killed:
        pass
    finally:
        training._step = step


def main() -> None:
    scratch = Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    whole = train(scratch / "whole")
    train_and_be_killed(scratch / "killed")
    answer = {
        "whole": digest(whole),
        "again": digest(train(scratch / "again")),
        "resumed": digest(train(scratch / "killed")),
        "first_loss": held_out_loss(make_model(64, 0, SETTINGS.seed), TEXT[:1000]),
        "loss": whole.loss,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
