"""The table of an engine run: what is compared with what, which attention backend was there, why a step failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "h200_run"))

from scheduling import Ended  # noqa: E402
from tables import reason, table  # noqa: E402

CHOSEN = "(EngineCore pid=7) INFO 11-30 14:51:05 [cuda.py:432] Using AttentionBackendEnum.{} backend.\n"
VISION = "INFO [cuda.py:533] Using backend AttentionBackendEnum.TORCH_SDPA for vit attention\n"


def answers(*texts: list[int], pieces: list[list[int]], margin: float = 1.0, **more: Any) -> dict[str, Any]:
    """What generate.py writes of one engine."""
    mode = [{"tokens": text, "logprobs": [-1.0] * len(text), "margins": [margin] * len(text)} for text in texts]
    given = {"alone": mode, "together": mode, "pieces": pieces, "speculated": [0, 0], "seconds": {"start": 60.0}}
    return given | {"cached_tokens": {"alone": 0, "together": 0}} | more


def write(work: Path, name: str, results: dict[str, Any], log: str, backend: str, reference: list[str] | None) -> None:
    """A step's job, result and log."""
    for folder in ("jobs", "results", "logs"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    engines = {kind: {"attention_backend": backend} for kind in results}
    references = {} if reference is None else {kind: reference for kind in results}
    (work / "jobs" / f"{name}.json").write_text(json.dumps({"engines": engines, "references": references}))
    (work / "results" / f"{name}.json").write_text(json.dumps(results))
    (work / "logs" / f"{name}.log").write_text(log)


def test_texts_are_compared_prompt_by_prompt_with_their_reference(tmp_path: Path) -> None:
    upstream = answers([1, 2], [3, 4], [5, 6], pieces=[[0, 5], [9, 7], [20, 7]])
    ours = answers([3, 4], [5, 6], pieces=[[9, 7], [20, 7]])
    log = f"=== eager\n{VISION}{CHOSEN.format('TRITON_ATTN')}"
    write(tmp_path, "m-volta", {"eager": upstream}, log, "TRITON_ATTN", None)
    ours["again"] = ours["together"]
    ours["cached_tokens"]["again"] = 48
    log = f"=== eager\n{CHOSEN.format('CUSTOM')}Using VoltaNvFp4LinearKernel for NVFP4 GEMM"
    write(tmp_path, "m-attention", {"eager": ours}, log, "CUSTOM", ["m-volta", "eager"])
    found = table([Ended("m-volta", "ok", 9.0), Ended("m-attention", "ok", 9.0)], tmp_path)
    line = next(line for line in found.lines if line.startswith("m-attention eager = m-volta eager: "))
    assert line.count("2/2 of 2 tokens, ") == 3
    assert "cached 48 tokens" in line
    assert line.endswith("VoltaNvFp4LinearKernel")
    assert found.is_good


def test_a_text_that_is_another_makes_the_run_a_bad_one(tmp_path: Path) -> None:
    pieces = [[0, 5]]
    write(tmp_path, "m-volta", {"eager": answers([1, 2], pieces=pieces)}, "", "TRITON_ATTN", None)
    log = f"=== eager\n{CHOSEN.format('CUSTOM')}"
    write(tmp_path, "m-attention", {"eager": answers([1, 7], pieces=pieces)}, log, "CUSTOM", ["m-volta", "eager"])
    found = table([], tmp_path)
    assert any("0/1 of 2 tokens WRONG" in line for line in found.lines)
    assert not found.is_good


def test_each_engine_has_to_name_the_attention_backend_that_was_asked_for(tmp_path: Path) -> None:
    results = {kind: answers([1], pieces=[[0, 5]]) for kind in ("eager", "graphs")}
    log = f"=== eager\n{CHOSEN.format('CUSTOM')}=== graphs\n{CHOSEN.format('CUSTOM')}{CHOSEN.format('TRITON_ATTN')}"
    write(tmp_path, "mixed", results, log, "CUSTOM", None)
    write(tmp_path, "silent", {"eager": results["eager"]}, f"=== eager\n{VISION}", "CUSTOM", None)
    found = table([], tmp_path)
    assert "  WRONG: mixed graphs was to use CUSTOM, its log names CUSTOM, TRITON_ATTN" in found.lines
    assert "  WRONG: silent eager was to use CUSTOM, its log names none" in found.lines
    assert "  CUSTOM in 1 engines" in found.lines
    assert not found.is_good


def test_a_step_that_failed_is_told_with_its_reason_and_the_end_of_its_log(tmp_path: Path) -> None:
    log = (
        "(EngineCore pid=7) RuntimeError: row_scale must hold float32\nRuntimeError: Engine core initialization failed."
    )
    write(tmp_path, "bad", {"eager": {"failed": log}}, log, "CUSTOM", None)
    found = table([Ended("bad", "exit code 1", 99.0), Ended("after", "not started", 0.0)], tmp_path)
    assert "  exit code 1: bad, 99 s; RuntimeError: row_scale must hold float32" in found.lines
    assert "bad eager: FAILED RuntimeError: row_scale must hold float32" in found.lines
    assert found.lines[-3:] == ["--- the end of bad's log", *log.splitlines()]
    assert not found.is_good


def test_a_log_without_an_error_says_so() -> None:
    assert reason("INFO all is well\nloading\n") == "no error in its log"
