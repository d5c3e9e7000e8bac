"""Make models/small: read the text, make the tokenizer, train the model, write the checkpoint.

Run it from the repository's root, with an environment that holds torch, transformers and tokenizers (README.md):

    ENVIRONMENT/bin/python -m tools.small_model.train --work /some/scratch --out models/small

The same machine and versions give the same bytes. It takes about 30 minutes of one core, prints the loss, keeps its
state in `--work`, and goes on from there when it is started again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tools.small_model.checkpoint import write_checkpoint
from tools.small_model.corpus import Chapter, read_corpus
from tools.small_model.model import make_model
from tools.small_model.training import STATE, Best, Settings, train
from tools.small_model.vocabulary import END, make_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Train onecat's small model and write its checkpoint.")
    parser.add_argument("--work", type=Path, required=True, help="directory for the state of the run")
    parser.add_argument("--out", type=Path, required=True, help="directory of the checkpoint")
    parser.add_argument("--write-only", action="store_true", help="train no further, write the best kept weights")
    arguments = parser.parse_args()
    state = arguments.work / STATE
    if arguments.write_only and not state.is_file():
        parser.error(f"{state} is not there: nothing was trained in {arguments.work}")
    for directory in (arguments.work, arguments.out):
        # A directory that cannot be made is told now and not after half an hour.
        directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    settings = Settings()
    corpus = read_corpus()
    tokenizer = make_tokenizer(chapter.text for chapter in corpus.learnt)
    end = tokenizer.token_to_id(END)

    def tokens(chapters: tuple[Chapter, ...]) -> torch.Tensor:
        rows = tokenizer.encode_batch([chapter.text for chapter in chapters])
        return torch.tensor([token for row in rows for token in (*row.ids, end)])

    learnt, held_out = tokens(corpus.learnt), tokens(corpus.held_out)
    model = make_model(tokenizer.get_vocab_size(), end, settings.seed)
    print(
        f"{sum(value.numel() for value in model.parameters())} parameters; {len(learnt)} tokens learnt, "
        f"{len(held_out)} held out ({len(corpus.held_out)} chapters)",
        flush=True,
    )
    if arguments.write_only:
        best = Best(**torch.load(state, weights_only=True)["best"])
    else:
        best = train(model, learnt, held_out, settings, arguments.work)
    write_checkpoint(arguments.out, model, best, tokenizer, corpus)


if __name__ == "__main__":
    main()
