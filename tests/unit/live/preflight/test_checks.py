"""What the checks of preflight say of what was observed: pure, so cards and hosts are records here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.config.schema import Deployment
from onecat.deploy import Release
from onecat.deploy.server import ServerState
from onecat.deploy.smoke import Answer
from onecat.doctor import Finding, examine, select
from onecat.errors import OnecatError
from onecat.experiments.records import Arrivals, Block, Request, Workload
from onecat.facts import Facts, Gpu
from onecat.live.preflight import Options, all_preflight_checks, groups, limits_of
from onecat.live.preflight.look import Look, Unknown
from onecat.live.preflight.observing import observers
from onecat.live.preflight.observing.answers import Repeats, SingleAnswer
from onecat.live.preflight.observing.arguments import Arguments, unlike_schema
from onecat.live.preflight.observing.choices import Chosen
from onecat.live.preflight.observing.health import Health
from onecat.live.preflight.observing.host import HostSeen
from onecat.live.preflight.observing.load import LoadSeen, input_tokens, most_seconds
from onecat.live.preflight.observing.log import LogSeen, seen_in
from onecat.live.preflight.observing.model import ModelSeen
from onecat.live.preflight.observing.nginx import Access, Asked, Certificate, NginxHealth, Stream, Streams
from onecat.live.preflight.observing.service import Keeper, WayBack
from onecat.live.preflight.observing.site import SiteSeen
from onecat.live.preflight.registry import ESSENTIAL, GROUPS
from onecat.live.preflight.running import judge
from onecat.observe.expectations import Surprise
from onecat.observe.metrics import GpuSample, Sample
from onecat.planner.records import Plan
from tests.unit.doctor.examples import HEALTHY, v100

V100 = load_profile("v100x2-pcie")
PLAN = Plan(
    deployment="chat",
    profile="v100x2-pcie",
    engine="vllm",
    engine_version="0.27.1",
    runtime="native",
    model_directory="/models/m",
    served_name="m",
    host="127.0.0.1",
    port=8000,
    server_args=("/models/m", "--port", "8000", "--max-model-len", "4096"),
    container=None,
)
RELEASE = Release(
    *("chat", 3, "/data/deployments/chat/releases/0003", "native", "v100x2-pcie", "m", "127.0.0.1", 8000),
    *("http://127.0.0.1:8080", False, "abc", "2026-11-30T12:00:00Z"),
)
DEPLOYMENT = Deployment.model_validate({"name": "chat", "profile": "v100x2-pcie", "model": {"path": "/models/m"}})


def requests(*seconds: float, error: str | None = None) -> tuple[Request, ...]:
    return tuple(Request(at, 0.0, 128, 16, 0.1, each, error=error) for at, each in enumerate(seconds))


def load(*seconds: float, samples: tuple[Sample, ...] = (), error: str | None = None) -> LoadSeen:
    block = Block(1, "chat", "2026-11-30T12:00:00Z", 10.0, requests(*seconds, error=error), Arrivals(64), Workload())
    return LoadSeen("http://127.0.0.1:8080", block, 128, "vllm bench serve 0.27.1 on here", samples)


def samples(busy: float, reasons: int = 0) -> tuple[Sample, ...]:
    gpus = tuple(
        GpuSample(
            index,
            utilization_percent=busy,
            memory_utilization_percent=busy / 2,
            sm_clock_mhz=1380,
            sm_clock_max_mhz=1380,
            memory_used=30 << 30,
            event_reasons=reasons,
        )
        for index in (0, 1)
    )
    return tuple(Sample(float(second), "gpu1", gpus=gpus) for second in range(12))


WELL: dict[type[Any], Any] = {
    HostSeen: HostSeen(HEALTHY, examine(HEALTHY, V100)),
    SiteSeen: SiteSeen("127.0.0.1:8080"),
    Health: Health("http://127.0.0.1:8000", 200, 0.004, models=("m",), longest=4096, version="0.27.1", metrics=300),
    SingleAnswer: SingleAnswer("?", 256, Answer("one two", ("one", " two"), (-0.1, -0.2), 0.2, "stop")),
    Repeats: Repeats("?", ("one two",) * 10, (0.5, 0.51) * 5),
    NginxHealth: NginxHealth("http://127.0.0.1:8080/health", (200,) * 20, (0.002,) * 20, on_host=True),
    Streams: Streams((Stream(0.1, 1.0, 24),) * 3, (Stream(0.101, 1.0, 24),) * 3),
    Certificate: Certificate("/etc/tls.pem", "Nov 30 12:00:00 2027 GMT", 365.0),
    Keeper: Keeper(ServerState("running", started_at="2026-11-30T12:00:00Z"), "Docker, unless-stopped"),
    WayBack: WayBack((1, 2), 3),
    Chosen: Chosen("The weights are not quantised", "planned: dtype float16", "float16", (), is_silent=False),
    ModelSeen: ModelSeen("/models/m", (), (("SHA256SUMS", 4),), 4, 2, 300, 15 * 10**9),
    Arguments: Arguments(PLAN.server_args, "the native runtime", schema="vllm 0.27.1"),
    LoadSeen: load(*(0.5 + at / 1000 for at in range(384)), samples=samples(97.0)),
    LogSeen: LogSeen(400, (), ()),
    Access: Access(tuple(Asked(float(number), 200) for number in range(400)), 400.0),
}


def look(**changes: Any) -> Look:
    observed = {**WELL, **{type(each): each for each in changes.pop("seen", ())}, **changes.pop("unknown", {})}
    values: dict[str, Any] = {
        "host": "gpu1",
        "release": RELEASE,
        "deployment": DEPLOYMENT,
        "profile": V100,
        "plan": PLAN,
        "limits": limits_of(DEPLOYMENT, {}),
    }
    return Look(**{**values, **changes}, observed=observed)


def of(name: str, seen: Look) -> list[Finding]:
    return list(judge(seen, select(all_preflight_checks(), (f"preflight.{name}",), ())))


def one(name: str, *seen: Any, **changes: Any) -> Finding:
    (found,) = of(name, look(seen=seen, **changes))
    return found


def test_a_healthy_deployment_passes_every_check() -> None:
    found = judge(look(), all_preflight_checks())
    told = [(each.check, each.status) for each in found if each.status != "pass"]
    assert told == [("preflight.clock", "skip"), ("preflight.shared-memory", "skip")], "facts without a clock's offset"
    assert {each.check for each in found} == {each.id for each in all_preflight_checks()}


def test_what_was_not_observed_is_skipped_with_its_reason_and_never_passes() -> None:
    nothing = {each.kind: Unknown("nobody knows", ("as it was said",)) for each in observers()}
    found = judge(look(unknown=nothing), all_preflight_checks())
    for each in found:
        if each.status == "skip":
            assert each.title == "Not checked: nobody knows; as it was said"
    assert {each.status for each in found} == {"skip"}


def test_every_check_has_a_page_and_a_place() -> None:
    checks = all_preflight_checks()
    assert len({(each.group, each.place) for each in checks}) == len(checks)
    assert set(groups().values()) == set(GROUPS)
    assert set(ESSENTIAL) <= {each.id for each in checks}
    for each in checks:
        assert each.id.startswith("preflight.")
        assert each.looks_at and each.why and each.fix and each.source


def with_cards(*cards: Gpu) -> Facts:
    assert HEALTHY.nvidia is not None
    return replace(HEALTHY, nvidia=replace(HEALTHY.nvidia, gpus=cards))


def test_doctors_findings_of_cards_are_told_with_their_check() -> None:
    sick = with_cards(v100(0, ecc_uncorrected_volatile=3), v100(1))
    (found,) = of("gpu", look(seen=[HostSeen(sick, examine(sick, V100))]))
    assert found.status in ("fail", "warn")
    assert (found.subject, found.evidence[-1]) == ("GPU 0", "found by doctor: gpu.ecc-errors")
    assert found.fix and found.source


def test_memory_that_the_server_holds_is_no_fault_and_is_told() -> None:
    serving = with_cards(v100(0, memory_used=30 << 30), v100(1))
    found = one("gpu", HostSeen(serving, examine(serving, V100)))
    assert found.status == "pass"
    assert "GPU 0: 30.0 of 32.0 GiB in use" in found.evidence


@pytest.mark.parametrize(
    ("found", "status", "told"),
    [
        (Answer("a", ("a",), (-0.1,), 1.0, "length"), "warn", "finish_reason length"),
        (Answer("a", ("a",), (-0.1,), 1.0, "abort"), "fail", "finish_reason is 'abort'"),
        (Answer("a", ("a",), (float("nan"),), 1.0, "stop"), "fail", "NaN or infinite"),
        (Answer(" ", (" ",), (-0.1,), 1.0, "stop"), "fail", "The answer is empty"),
        (Answer("a", ("a",), (None,), 1.0, "stop"), "fail", "without log-probabilities"),
        (None, "fail", "No answer: refused"),
    ],
)
def test_answers(found: Answer | None, status: str, told: str) -> None:
    finding = one("answer", SingleAnswer("?", 256, found, "refused"))
    assert finding.status == status
    assert told in finding.title


def test_texts_that_differ_are_a_warning_unless_others_asked_meanwhile() -> None:
    differing = Repeats("?", ("one two", "one too") * 5, (0.5,) * 10, in_between=0)
    found = one("determinism", differing)
    assert (found.status, found.title.rpartition(" from ")[2]) == ("warn", "character 6 on")
    assert one("determinism", replace(differing, in_between=4)).status == "info"
    assert one("determinism", Repeats("?", ("a", "", ""), (0.5,) * 3)).title == "2 of 3 answers are empty"


def test_times_that_scatter_more_than_the_limit() -> None:
    assert one("spread", Repeats("?", ("a",) * 10, (0.5, 0.7) * 5)).status == "warn"
    wide = limits_of(DEPLOYMENT, {"spread_ms": 200})
    assert one("spread", Repeats("?", ("a",) * 10, (0.5, 0.7) * 5), limits=wide).status == "pass"


def test_a_p99_is_judged_by_its_interval() -> None:
    quick, late = [0.5 + at / 1000 for at in range(384)], [2.0 + at / 1000 for at in range(384)]
    assert one("concurrency", load(*quick)).status == "pass"
    found = one("concurrency", load(*late))
    assert found.status == "fail"
    assert found.title.startswith("P99 2.38 s (2.3")
    straddling = [0.5] * 379 + [1.4, 1.45, 1.6, 1.7, 1.8]
    found = one("concurrency", load(*straddling))
    assert (found.status, found.title.partition(":")[0]) == ("warn", "Not decided")
    assert "--requests 1536" in found.fix[0]
    # Too few for an interval: so many late ones that P99 must be above the limit, or nothing is decided.
    assert one("concurrency", load(*[2.0] * 20)).status == "fail"
    found = one("concurrency", load(*[0.5] * 20))
    assert (found.status, "--requests 368" in found.fix[0]) == ("warn", True)
    found = one("concurrency", load(*quick, error="timeout"))
    assert (found.status, found.title) == ("fail", "384 of 384 requests failed: 384 x timeout")


def test_cards_that_idle_or_are_slowed_down_under_load() -> None:
    assert [each.status for each in of("utilization", look())] == ["pass", "pass"]
    idle = of("utilization", look(seen=[load(0.5, samples=samples(12.0))]))
    assert [(each.status, each.subject) for each in idle] == [("warn", "GPU 0"), ("warn", "GPU 1")]
    slowed = of("utilization", look(seen=[load(0.5, samples=samples(97.0, reasons=0x40))]))
    assert [each.status for each in slowed] == ["pass", "pass", "warn"]
    assert of("utilization", look(seen=[load(0.5)]))[0].status == "skip"


def test_who_may_ask() -> None:
    open_door = one("api-key", SiteSeen("0.0.0.0:8080"))
    assert (open_door.status, "nginx at 0.0.0.0:8080 without a key" in open_door.title) == ("fail", True)
    assert one("api-key", SiteSeen("0.0.0.0:8080", checks_keys=True)).status == "pass"
    assert one("api-key", SiteSeen("[::]:8080"), release=replace(RELEASE, protected=True)).status == "pass"
    found = one("api-key", release=replace(RELEASE, host="10.0.0.5"))
    assert (found.status, "the server at 10.0.0.5:8000" in found.title) == ("fail", True)


def test_what_keeps_it_running_and_what_there_is_to_go_back_to() -> None:
    running = ServerState("running")
    assert one("restart", Keeper(running, None)).status == "fail"
    assert one("restart", Keeper(replace_state(running, restarts=2), "Docker, always")).status == "warn"
    assert one("way-back", WayBack((), 1)).status == "info"


def replace_state(state: ServerState, **changes: Any) -> ServerState:
    return state._replace(**changes)


def test_nginx() -> None:
    slow = NginxHealth("u", (200,) * 20, (0.2,) * 20, on_host=True)
    assert one("nginx-health", slow).status == "fail"
    found = one("nginx-health", replace(slow, on_host=False))
    assert (found.status, "over SSH" in found.title) == ("warn", True), "SSH's part is not known"
    assert one("nginx-health", NginxHealth("u", (502,), (0.1,), on_host=True)).title.endswith("it answers 502")
    buffered = Streams((Stream(0.1, 1.0, 24),) * 3, (Stream(0.98, 1.0, 24),) * 3)
    assert one("nginx-streaming", buffered).status == "fail"
    late = Streams((Stream(0.1, 1.0, 24),) * 3, (Stream(0.4, 1.3, 24),) * 3)
    assert one("nginx-streaming", late).status == "warn"
    quick = Streams((Stream(0.1, 0.11, 24),) * 3, (Stream(0.1, 0.11, 24),) * 3)
    assert one("nginx-streaming", quick).status == "skip"
    assert one("tls", Certificate("/c", "yesterday", -1.0)).status == "fail"
    assert one("tls", Certificate("/c", "soon", 3.0)).status == "warn"


@pytest.mark.parametrize(
    ("failed_at", "status", "told"),
    [
        ([], "pass", "No 5xx in the last 60 min, 400 requests"),
        ([7100.0], "warn", "1 of 401 requests in the last 60 min failed (0.25 %; limit 1 %): 1 x 502"),
        (
            [7000.0 + second for second in range(8)],
            "fail",
            "8 of 408 requests in the last 60 min failed (2 %; limit 1 %)",
        ),
        ([60.0, 61.0], "pass", "No 5xx in the last 60 min, 400 requests"),
    ],
)
def test_failed_requests_count_by_their_share_of_the_last_minutes(
    failed_at: list[float], status: str, told: str
) -> None:
    answered = [Asked(3700.0 + number, 200) for number in range(400)]
    failed = [Asked(moment, 502, f"{moment} POST /v1/completions: 502") for moment in failed_at]
    found = one("nginx-log", Access((*failed, *answered), 7200.0))
    assert found.status == status
    assert found.title.startswith(told)
    if status == "pass" and failed:
        assert found.evidence == ("2 failed before that, the last one: 61.0 POST /v1/completions: 502",)


def test_arguments_and_who_has_read_them() -> None:
    refused = Arguments(
        PLAN.server_args, "the native runtime", "unrecognized arguments: --swap-space", "", "vllm 0.27.1"
    )
    assert one("arguments", refused).status == "fail"
    only_schema = Arguments(PLAN.server_args, None, None, "no module named vllm", "vllm 0.27.1")
    found = one("arguments", only_schema)
    assert (found.status, found.title) == ("pass", "2 flags fit onecat's schema of vllm 0.27.1 only")
    assert one("arguments", replace(only_schema, unlike=("--x is no flag",))).status == "fail"
    assert one("arguments", replace(only_schema, schema=None)).status == "skip"


def test_words_that_do_not_fit_a_schema() -> None:
    from onecat.engines import flag_schema

    schema = flag_schema("vllm", "0.27.1")
    assert list(unlike_schema(("/m", "--max-model-len", "4k", "--no-enable-prefix-caching", "--port=1"), schema)) == []
    (unknown,) = unlike_schema(("/m", "--max-modle-len", "4"), schema)
    assert unknown == "--max-modle-len is no flag of vllm 0.27.1"
    (wrong,) = unlike_schema(("/m", "--max-num-seqs", "many"), schema)
    assert wrong.startswith("--max-num-seqs many: expected a whole number")


def test_what_the_engine_made_of_the_weights() -> None:
    other = Surprise("quantization", "the engine calculates otherwise", "why", ("do this",), "its line")
    found = one("quantization", replace(WELL[Chosen], surprises=(other,)))
    assert (found.status, found.evidence, found.fix) == ("warn", ("its line",), ("do this",))
    assert one("quantization", replace(WELL[Chosen], is_silent=True)).status == "skip"


def test_the_load_is_bounded_and_fits_the_server() -> None:
    limits = limits_of(DEPLOYMENT, {})
    assert most_seconds(limits) == 90.0
    assert input_tokens(limits, PLAN) == 128
    assert input_tokens(limits, replace(PLAN, server_args=("/m", "--max-model-len", "64"))) == 32


def test_limits_come_from_onecat_yaml_and_are_changed_by_options() -> None:
    own = Deployment.model_validate({**DEPLOYMENT.model_dump(), "preflight": {"concurrent": 8, "p99_seconds": 3}})
    assert limits_of(own, {"p99_seconds": 2.0}).model_dump(include={"concurrent", "p99_seconds"}) == {
        "concurrent": 8,
        "p99_seconds": 2.0,
    }
    with pytest.raises(OnecatError, match="3 requests cannot be 64 at once"):
        limits_of(DEPLOYMENT, {"requests": 3})
    with pytest.raises(OnecatError, match="preflight.concurrent is 0"):
        limits_of(DEPLOYMENT, {"concurrent": 0})
    assert Options(limits={}).quick is False


def test_lines_of_level_error_that_are_known_as_harmless_are_no_fault() -> None:
    known = "ERROR 11-30 17:00:00 [serving.py:1] jinja2.exceptions.TemplateError: Conversation roles must alternate"
    passed = one("log", seen_in([known]))
    assert (passed.status, passed.title) == ("pass", "1 lines tell of no fault")
    assert passed.evidence[0].startswith("harmless: ")
    strange = one("log", seen_in([known, "ERROR 11-30 17:00:01 [core.py:9] the flux is out of phase"]))
    assert (strange.status, strange.title) == ("warn", "1 error in the log that onecat knows no cause of")
    assert strange.evidence == ("line 2: ERROR 11-30 17:00:01 [core.py:9] the flux is out of phase",)


def test_a_traceback_is_one_error_also_with_a_level_before_each_of_its_lines() -> None:
    said = (
        "Traceback (most recent call last):",
        '  File "core.py", line 9, in step',
        "flux.PhaseError: the flux is out of phase",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "core.py", line 12, in run',
        "RuntimeError: it ended",
    )
    for head in ("(EngineCore pid=7) ERROR 11-30 17:00:01 [core.py:9] ", ""):
        found = one("log", seen_in(["INFO 11-30 17:00:00 [core.py:1] begun", *(head + line for line in said)]))
        assert (found.status, found.title) == ("warn", "1 error in the log that onecat knows no cause of")
        assert found.evidence == ("line 4: flux.PhaseError: the flux is out of phase",)
    known = [
        f"ERROR 11-30 17:00:01 [core.py:9] {line}"
        for line in (*said[:2], "torch.OutOfMemoryError: CUDA out of memory.")
    ]
    assert seen_in(known).unexplained == ()


def test_what_an_earlier_start_failed_by_is_no_fault_of_the_one_that_serves() -> None:
    start = "INFO 11-30 17:00:00 [api_server.py:1] vLLM API server version 0.27.1"
    fault = "ERROR 11-30 17:00:01 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB."
    ready = "INFO:     Application startup complete."
    assert one("log", seen_in([start, fault, start, ready])).status == "pass"
    assert one("log", seen_in([start, fault])).status == "fail"
