"""`onecat bench ab` and `sweep`: on a real vLLM that runs, and on a deployment that is started anew.

bench/ab.py has the whole of what is held here to one comparison each: 20 without a difference, and half the slow-down.
What is started anew is the small server, whose starts take a second.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.ab import DELAYS, Bed, bed
from onecat.experiments.results import read_experiment
from onecat.images import NativeRuntime
from tests.testbed.command import Onecat
from tests.testbed.delaying_proxy import DelayingProxy, Delays, running
from tests.testbed.deployments import SmallDeployment
from tests.testbed.served import Served

SMALL_SERVER = Path(__file__).with_name("openai_server.py")
pytestmark = pytest.mark.engine
PAIRS = 8
SLOWER = 0.1
"""Twice what bench/ab.py plants: found with few pairs also where other tests have left a machine busy."""
SHORT = ("--requests", "4", "--concurrency", "4", "--input-tokens", "16", "--output-tokens", "12", "--warm-up", "4")


@pytest.fixture(scope="module")
def proxies(served: Served, engine_runtime: NativeRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(served, engine_runtime.serve_argv([])[0], tmp_path_factory.mktemp("ab")) as made:
        made.delays, made.workload = Delays(0.06, 0.02), replace(made.workload, output_tokens=12)
        yield made


@pytest.mark.measures
def test_a_server_compared_with_itself_shows_no_difference(proxies: Bed) -> None:
    row = proxies.compare(0.0, PAIRS)
    assert row.is_right, row.line()


@pytest.mark.measures
def test_a_planted_slow_down_is_found(served: Served, tmp_path: Path) -> None:
    """As a person types it, with a Ctrl-C in between: what is whole is not measured twice."""
    target, file = ("127.0.0.1", served.port), tmp_path / "ab.jsonl"
    a, b = DelayingProxy(target, DELAYS), DelayingProxy(target, DELAYS.slower(SLOWER))
    with running(a, b):
        address = ("--a", a.url, "--b", f"{b.url}/v1", "--model", served.model, "--tokenizer", served.directory)
        words = ("bench", "ab", *address, "--max-pairs", str(PAIRS), *SHORT, "-o", file)
        code, told = interrupted(served.onecat, words, "pair 2 ")
        assert code == 130, told
        begun = read_experiment(file).blocks
        done = served.onecat("bench", "ab", "--resume", file, "--json", timeout=400).expect(0)
    verdict = done.json()["verdict"]
    assert (verdict["verdict"], verdict["pairs"]) == ("slower", PAIRS), verdict["sentence"]
    assert -13 < verdict["faster_percent"] < -6
    assert verdict["sentence"].startswith("B is slower by ")
    experiment = read_experiment(file)
    assert experiment.blocks[: len(begun)] == begun
    whole = [each.workload.seed for each in experiment.blocks if not each.warm_up]
    assert len(whole) - len(set(whole)) in (PAIRS, PAIRS + 1)  # the pair that was begun at most is measured anew
    assert set(experiment.environment.arms) == {"A", "B"}
    assert "pair 8 of at most 8" in done.stderr


def interrupted(onecat: Onecat, words: Sequence[str | Path], at: str) -> tuple[int, list[str]]:
    """Run a command, and send it Ctrl-C at the first line that begins so. Returns its code and standard error."""
    with subprocess.Popen(
        onecat.argv(*words), env=onecat.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as begun:  # fmt: skip
        assert begun.stderr is not None
        seen = []
        for line in begun.stderr:
            seen.append(line.rstrip())
            if line.startswith(at):
                begun.send_signal(signal.SIGINT)
    return begun.returncode, seen


@dataclass(frozen=True)
class EngineLauncher:
    """The small server run by the engine's Python, which then sends the load as well."""

    python: str

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        return [self.python, str(SMALL_SERVER), *server_args]


@pytest.fixture
def slow_and_fast(small: SmallDeployment, engine_runtime: NativeRuntime, tmp_path: Path) -> Onecat:
    """A deployment that answers one request at a time, as it serves; with a higher --max-num-seqs several."""
    small.model = shutil.copytree(small.model, tmp_path / "model")
    small.up("--max-num-seqs", "1", launcher=EngineLauncher(engine_runtime.serve_argv([])[0]))
    return Onecat(home=small.home.data, cache=small.home.cache)


CHATS = ("--chat", "--requests", "8", "--concurrency", "4", "--input-tokens", "8", "--output-tokens", "6")


def test_variants_are_started_in_turn_and_ctrl_c_puts_back_what_served(
    slow_and_fast: Onecat, small: SmallDeployment, tmp_path: Path
) -> None:
    onecat, file = slow_and_fast, tmp_path / "ab.jsonl"
    words = ("bench", "ab", "demo", "--b-set", "max-num-seqs=4", *CHATS, "--warm-up", "4", "-o", file)
    code, seen = interrupted(onecat, words, "pair 1 ")
    assert code == 130, seen
    assert "B: --max-num-seqs 4" in seen and "A: --max-num-seqs 1" in seen
    assert "demo serves as before" in seen
    (kept,) = onecat("releases", "demo", "--json").expect(0).json()["deployments"]
    releases = {each["release"]: each for each in kept["releases"]}
    assert [releases[number]["purpose"] for number in sorted(releases)] == ["up", "bench", "bench", "rollback"]
    assert releases[4]["fingerprint"] == releases[1]["fingerprint"] == releases[2]["fingerprint"]
    assert releases[3]["fingerprint"] != releases[1]["fingerprint"]
    assert small.status().state == "serving"
    experiment = read_experiment(file)
    assert [(each.arm, each.warm_up) for each in experiment.blocks][:4] == [
        ("A", True), ("A", False), ("B", True), ("B", False),
    ]  # fmt: skip
    assert all(request.error is None for block in experiment.blocks for request in block.requests)
    assert experiment.finished_at is None and experiment.settings["original_release"] == 1
    # Four at once instead of one: the server that B was really had the flag.
    waits = {each.arm: max(request.ttft or 0 for request in each.requests) for each in experiment.blocks}
    assert waits["A"] > waits["B"]

    # With another checkpoint it does not go on, and nothing is started for that.
    (small.model / "added.json").write_text("{}")
    refused = onecat("bench", "ab", "--resume", file).expect(1)
    assert "since it was begun, checkpoint changed" in refused.stderr
    assert len(small.store.releases()) == 4 and read_experiment(file).blocks == experiment.blocks


@pytest.mark.measures
def test_a_sweep_finds_the_better_value_and_suggests_a_profile(
    slow_and_fast: Onecat, small: SmallDeployment, tmp_path: Path
) -> None:
    file, profile = tmp_path / "sweep.jsonl", tmp_path / "cpu-tuned.yaml"
    asked = ("demo", "--over", "max-num-seqs=1,2,4", "--confirm-pairs", "0", *CHATS)
    done = slow_and_fast("bench", "sweep", *asked, "-o", file, "--write-profile", profile, "--json").expect(0)
    document = done.json()
    assert (document["schema"], document["kind"]) == ("onecat.bench/1", "sweep")
    verdict = document["verdict"]
    assert (verdict["verdict"], verdict["best"]) == ("not-confirmed", {"max-num-seqs": "4"}), verdict["sentences"]
    gains = {each["settings"].get("max-num-seqs"): each["faster_percent"] for each in verdict["points"]}
    assert gains["1"] < 50 < gains["2"] < gains["4"]
    assert {each.arm for each in read_experiment(file).blocks} == {
        "as it serves", "max-num-seqs=1", "max-num-seqs=2", "max-num-seqs=4",
    }  # fmt: skip
    assert "is valid" in slow_and_fast("profile", "validate", profile).expect(0).stdout
    assert "value: 4" in profile.read_text()
    # As before: one at a time, by a release that is the first one again.
    current = small.store.current()
    assert current is not None and (current.purpose, current.origin) == ("rollback", 1)
    assert small.status().state == "serving"
    again = slow_and_fast("bench", "sweep", "--resume", file)
    assert again.code == 2 and "finished" in again.stderr
