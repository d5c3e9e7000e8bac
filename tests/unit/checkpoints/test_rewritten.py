"""A directory in which a checkpoint is not finished says so, whatever is there already."""

from __future__ import annotations

from pathlib import Path

from onecat.checkpoints import inspect, write_tiny_checkpoint
from onecat.checkpoints.integrity import Request, verify
from onecat.checkpoints.integrity.contents import read_contents
from onecat.checkpoints.integrity.rules.rewrites import rewritten
from onecat.checkpoints.rewritten import REWRITE_DIRECTORY, UnfinishedRewrite, unfinished_rewrite
from onecat.nvfp4.rewriting.state import State, end_state, state_directory, write_state


def test_inspect_and_verify_tell_it_with_how_to_go_on(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_tiny_checkpoint(model)
    state_directory(model).mkdir()
    assert unfinished_rewrite(model) is None
    assert list(rewritten(read_contents(model))) == []
    write_state(model, State("/models/original", "1", {}, {}, "", ()))
    assert unfinished_rewrite(model) == UnfinishedRewrite("/models/original")
    (fault,) = rewritten(read_contents(model))
    assert (fault.code, fault.severity, fault.where) == ("incomplete-rewrite", "fail", REWRITE_DIRECTORY)
    (problem,) = [each for each in inspect(model).problems if each.code == "incomplete-rewrite"]
    assert "/models/original" in problem.text and problem.severity == "fail"
    for name in ("config.json", "tokenizer.json"):
        (model / name).unlink()
    (model / "broken.json").write_text("{")
    told = {each.code for each in verify(Request(model)).faults if each.severity == "fail"}
    assert told == {"incomplete-rewrite", "bad-json"}, "what is still to come is told once, what is wrong all the same"
    assert {each.code for each in inspect(model).problems} == {"incomplete-rewrite"}
    end_state(model)
    told = {each.code for each in verify(Request(model)).faults}
    assert told >= {"missing-file", "missing-tokenizer", "bad-json"}
    assert {each.code for each in inspect(model).problems} >= {"missing-file", "missing-tokenizer"}
    assert [each for each in inspect(model).problems if each.code == "incomplete-rewrite"] == []
