"""Runs that may be compared, and those that may not, with what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.comparability import argument_values, arrivals_text, check_comparable, differences
from onecat.experiments.records import Arrivals, Block, Experiment, Objectives, Workload
from tests.measured import a_block, a_run, an_experiment

NAMES = ("before", "after")


def with_blocks(experiment: Experiment, **changed: Any) -> Experiment:
    return replace(experiment, blocks=tuple(replace(block, **changed) for block in experiment.blocks))


def with_workload(experiment: Experiment, **changed: Any) -> Experiment:
    def changed_block(block: Block) -> Block:
        return replace(block, workload=replace(block.workload, **changed))

    return replace(experiment, blocks=tuple(map(changed_block, experiment.blocks)))


def with_arm(experiment: Experiment, **changed: Any) -> Experiment:
    arms = {name: {**arm, **changed} for name, arm in experiment.environment.arms.items()}
    return replace(experiment, environment=replace(experiment.environment, arms=arms))


def with_driver(experiment: Experiment, **changed: Any) -> Experiment:
    driver = {**experiment.environment.driver, **changed}
    return replace(experiment, environment=replace(experiment.environment, driver=driver))


RUN = with_driver(replace(a_run(requests=10), settings={"request_timeout": 600.0}), pinned=True)
RUN = with_arm(RUN, proxied=True, endpoint="http://127.0.0.1:8000", loaded="http://127.0.0.1:8000")

MATTERING = [
    ("API", with_workload(RUN, chat=True)),
    ("requests in a block", with_workload(RUN, requests=20)),
    ("input tokens", with_workload(RUN, input_tokens=1024)),
    ("output tokens", with_workload(RUN, output_tokens=None)),
    ("spread of lengths", with_workload(RUN, range_ratio=0.5)),
    ("end of sequence", with_workload(RUN, ignore_eos=False)),
    ("arrivals", with_blocks(RUN, arrivals=Arrivals(concurrency=9))),
    ("objectives", replace(RUN, objectives=Objectives(ttft_ms=200))),
    ("model", with_arm(RUN, model="qwen3-14b")),
    ("GPUs", with_arm(RUN, gpus=["Tesla V100-PCIE-32GB"])),
    ("GPUs", with_arm(RUN, gpus=[])),
    ("load driver", with_driver(RUN, version="0.28.0")),
    ("load driver", with_driver(RUN, name="aiperf")),
    ("where the load comes from", with_driver(RUN, where="desk")),
    ("way to the server", with_arm(RUN, loaded="http://127.0.0.1:9000")),
    ("cores of the load driver", with_driver(RUN, pinned=False)),
    ("time limit of a request", replace(RUN, settings={"request_timeout": 60.0})),
    ("warm-up", replace(RUN, blocks=RUN.blocks[1:])),
]


@pytest.mark.parametrize(("what", "other"), MATTERING)
def test_runs_that_differ_in_what_matters_are_refused_and_it_is_named(what: str, other: Experiment) -> None:
    assert [each.what for each in differences((RUN, other)) if each.role == "matters"] == [what]
    with pytest.raises(OnecatError) as refused:
        check_comparable((RUN, other), NAMES)
    assert refused.value.code == ExitCode.NO
    assert what in refused.value.found
    assert [line.split()[0] for line in refused.value.details[1:]] == list(NAMES)


@pytest.mark.parametrize(
    ("what", "values", "other"),
    [
        ("engine version", ("0.27.1", "0.28.0"), with_arm(RUN, engine_version="0.28.0")),
        ("release", ("3", "4"), with_arm(RUN, release=4)),
        ("image", ("not known", "sha256:ab"), with_arm(RUN, image="sha256:ab")),
        ("profile", ("v100x2-pcie", "v100"), with_arm(RUN, profile="v100")),
        ("checkpoint", ("sha256:5d41402abc4b2a76", "x"), with_arm(RUN, checkpoint="x")),
        ("env VLLM_USE_V1", ("not known", "1"), with_arm(RUN, env={"VLLM_USE_V1": "1"})),
    ],
)
def test_what_comparisons_are_made_for_is_told_and_allowed(
    what: str, values: tuple[str, str], other: Experiment
) -> None:
    (found,) = check_comparable((RUN, other), NAMES)
    assert (found.what, found.role, found.values) == (what, "compared", values)


def test_processors_matter_where_there_are_no_gpus() -> None:
    one, other = (with_arm(RUN, gpus=[], hardware={"cpu": "EPYC", "cores": cores}) for cores in (8, 16))
    found = {each.what: each.values for each in differences((one, other))}
    assert found == {"GPUs": ("none; EPYC, 8 cores", "none; EPYC, 16 cores"), "hardware cores": ("8", "16")}


def test_each_argument_that_differs_is_told_by_itself() -> None:
    other = with_arm(RUN, server_args=["--tensor-parallel-size=2", "--max-num-seqs", "128", "--enforce-eager"])
    found = {each.what: each.values for each in check_comparable((RUN, other), NAMES)}
    assert found == {
        "--max-num-seqs": ("64", "128"),
        "--dtype": ("float16", "not given"),
        "--enforce-eager": ("not given", "given"),
    }


def test_the_same_again_differs_in_nothing() -> None:
    assert check_comparable((RUN, replace(RUN, id="another")), NAMES) == ()


def test_fewer_repetitions_are_comparable() -> None:
    """A run that was cut off, or an A/B comparison that ended early, has the same requests as far as it goes."""
    assert check_comparable((RUN, replace(RUN, blocks=RUN.blocks[:3])), NAMES) == ()


def test_a_run_is_not_comparable_with_one_that_repeats_its_prompts() -> None:
    """A server answers what it has seen before from its prefix cache."""
    repeated = with_workload(RUN, seed=1)
    (found,) = differences((RUN, repeated))
    assert (found.what, found.values) == ("repetitions", ("have new prompts", "have the same prompts"))
    once = replace(RUN, blocks=RUN.blocks[:2])
    assert differences((once, RUN)) == differences((once, repeated)) == ()


def test_another_seed_makes_other_prompts() -> None:
    other = replace(RUN, blocks=RUN.blocks[:1] + RUN.blocks[2:])
    assert [each.what for each in differences((RUN, other))] == ["seed of the prompts"]


def test_other_prompts_are_other_work() -> None:
    files = [with_workload(RUN, source="file", path="/x/prompts.txt", digest=digit * 64) for digit in "ab"]
    assert [each.what for each in differences(files)] == ["prompts"]
    assert [each.what for each in differences((RUN, files[0]))] == ["prompts", "input tokens"]


def test_a_file_is_the_same_wherever_it_lies() -> None:
    one, other = (
        with_workload(RUN, source="sharegpt", path=path, digest="b" * 64) for path in ("/a/x.json", "/b/y.json")
    )
    assert differences((one, other)) == ()


def test_bursts_are_comparable_though_one_sent_more() -> None:
    bursts = [
        an_experiment([a_block(0, arm="burst", requests=number)], kind="burst", arms={"": {}}) for number in (50, 80)
    ]
    assert differences(bursts) == ()
    short, long = (replace(bursts[1], settings={"design": {"seconds": seconds}}) for seconds in (30.0, 60.0))
    assert [each.what for each in differences((short, long))] == ["length of the burst"]


def test_what_else_is_known_is_told_by_its_path() -> None:
    one, other = (
        with_arm(RUN, hardware={"kernel": "6.1", "gpus": [{"power_limit_watts": watts}]}) for watts in (250, 200)
    )
    (found,) = differences((one, other))
    assert (found.what, found.role, found.values) == ("hardware gpus 0 power limit watts", "told", ("250", "200"))


def test_more_than_two_runs_are_compared_at_once() -> None:
    found = differences((RUN, with_arm(RUN, release=4), with_arm(RUN, release=5)))
    assert [each.values for each in found] == [("3", "4", "5")]


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--a", "1", "--b=2", "--c"], {"--a": "1", "--b": "2", "--c": "given"}),
        (["--a", "1", "2"], {"--a": "1 2"}),
        (["serve", "--a"], {"argument 1": "serve", "--a": "given"}),
        ([], {}),
    ],
)
def test_arguments_are_read_by_name(arguments: list[str], values: dict[str, str]) -> None:
    assert argument_values(arguments) == values


@pytest.mark.parametrize(
    ("arrivals", "text"),
    [
        (Arrivals(), "all at once"),
        (Arrivals(concurrency=8), "8 at once"),
        (Arrivals(rate=4.0), "4 a second (Poisson)"),
        (Arrivals(rate=0.5, concurrency=64, burstiness=0.25), "0.5 a second (burstiness 0.25), at most 64 at once"),
    ],
)
def test_arrivals_in_words(arrivals: Arrivals, text: str) -> None:
    assert arrivals_text(arrivals) == text


def test_workloads_have_no_aspect_that_nobody_looks_at() -> None:
    """A new field of Workload or Arrivals must become a row, or be left out here for a reason."""
    looked_at = {what.replace(" ", "_") for what, _ in MATTERING}
    names = set(Workload.__dataclass_fields__) | set(Arrivals.__dataclass_fields__)
    told_otherwise = {
        "source", "path", "digest", "chat", "requests", "range_ratio", "seed", "ignore_eos",
        "concurrency", "rate", "burstiness",
    }  # fmt: skip
    assert names - told_otherwise <= looked_at
