"""Deployments as people read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from onecat.deploy.audit import Entry
from onecat.deploy.engine import KeptChoices
from onecat.deploy.operations import DeploymentStatus
from onecat.deploy.overview import CanaryShare, Overview, overviews_exit
from onecat.errors import ExitCode
from onecat.observe.choices import EngineChoices, Kernel
from onecat.observe.expectations import Expected, surprises
from onecat.observe.secrets import without_secrets
from onecat.render import columns
from onecat.render.comparisons import comparison_lines
from onecat.render.deployments import (
    appended_lines,
    duration,
    engine_lines,
    history_lines,
    status_changes,
    status_lines,
    view_lines,
)

NOON = datetime(2026, 11, 30, 12, 0, 1, tzinfo=timezone.utc)
CHOSEN = EngineChoices(
    version="0.27.1",
    device="cuda",
    dtype="float16",
    quantization="compressed-tensors",
    kv_cache_dtype="auto",
    max_model_len=2048,
    execution="eager",
    kv_tokens=32768,
    max_concurrency=16.0,
    weights_gib=0.27,
    attention=("TRITON_ATTN",),
    kernels=(Kernel("MarlinNvFp4LinearKernel", "NVFP4"),),
)
PLANNED = Expected("float16", "compressed-tensors", eager=True, kv_tokens=64000, max_model_len=2048)
SERVING = Overview(
    DeploymentStatus(
        "demo",
        "serving",
        release=3,
        runtime="container",
        container="onecat-demo-0003",
        pid=7,
        health="ok",
        model="tiny",
        endpoint="http://127.0.0.1:8080",
        server="http://127.0.0.1:8000",
        proxy="own",
        uptime_seconds=90,
    ),  # fmt: skip
    host="local",
    strategy="blue-green",
    created_at="2026-11-30T02:24:42.997Z",
    service="docker",
    gpus=("GPU-11111111-2222-3333-4444-555555555555", "GPU-21111111-2222-3333-4444-555555555555"),
    canary=CanaryShare(4, 0.1),
    engine=KeptChoices(CHOSEN, PLANNED, surprises(CHOSEN, PLANNED)),
    warnings=("when the host starts anew, the native server and its own nginx must be started again: onecat up",),
)


def test_a_status_fits_80_columns_and_shows_the_engine_beside_the_plan() -> None:
    lines = [line.text for line in status_lines(SERVING)]
    assert max(map(columns.width, lines)) <= 80
    assert lines[:3] == [
        "demo: serving",
        "  release:   3, blue-green, made 2026-11-30 02:24 UTC",
        "  canary:    release 4 gets 10% of the requests",
    ]
    assert lines[-2].startswith("  warning:   when the host starts anew")


def test_what_the_engine_chose_stands_beside_what_was_planned() -> None:
    assert SERVING.engine is not None
    lines = list(engine_lines(SERVING.engine))
    assert [line.text for line in lines] == [
        "  engine:    0.27.1 on cuda",
        "    dtype           float16                  planned: float16",
        "    quantisation    compressed-tensors       planned: compressed-tensors",
        "    execution       eager                    planned: eager",
        "    attention       TRITON_ATTN",
        "    NVFP4 kernel    MarlinNvFp4LinearKernel",
        "    KV tokens       32,768                   planned: 64,000",
        "    context length  2,048                    planned: 2,048",
        "    at full length  16 requests at once",
        "    weights         0.27 GiB per device",
    ]
    assert [line.text.split()[0] for line in lines if line.style] == ["KV"]


def test_an_engine_whose_log_says_nothing_takes_no_room() -> None:
    assert list(engine_lines(KeptChoices(EngineChoices(), Expected(), ()))) == []


def changed(**values: object) -> Overview:
    return replace(SERVING, status=replace(SERVING.status, **values))  # type: ignore[arg-type]


def test_a_watcher_is_told_what_has_changed_and_nothing_else() -> None:
    assert list(status_changes([SERVING], [SERVING], False)) == []
    crashed = changed(state="restarting", restarts=1, last_exit="exited with status 1", cause="It ran out of memory.")
    assert list(status_changes([SERVING], [crashed], False)) == [
        "demo: serving -> restarting: It ran out of memory.",
        "demo: restarts 0 -> 1 (exited with status 1)",
    ]
    promoted = replace(changed(release=4), canary=None)
    assert list(status_changes([SERVING], [promoted], True)) == [
        "local demo: release 3 -> 4",
        "local demo: no canary any more, release 4 gets all",
    ]
    assert list(status_changes([SERVING], [], False)) == ["demo: gone"]
    assert list(status_changes([], [SERVING], False)) == ["demo: serving (new)"]


def test_the_first_look_is_whole_and_later_ones_are_lines_with_the_time() -> None:
    first = [line.text for line in appended_lines(NOON, None, [SERVING], several_hosts=False, width=80)]
    assert first[0] == "demo: serving"
    assert first[-1] == "12:00:01 watching; changes follow, Ctrl-C ends"
    later = appended_lines(NOON, [SERVING], [changed(state="lost")], several_hosts=False, width=80)
    assert [line.text for line in later] == ["12:00:01 demo: serving -> lost"]


def test_a_view_fits_its_screen_however_many_deployments_there_are() -> None:
    log = [(NOON, f"change {number}") for number in range(50)]
    for count, height in ((1, 40), (1, 10), (30, 24)):
        many = [replace(SERVING, host=f"gpu{number}") for number in range(count)]
        lines = view_lines(NOON, many, log, several_hosts=True, width=60, height=height)
        assert len(lines) <= height
        assert max(columns.width(line.text) for line in lines) <= 60
        assert lines[0].text.startswith("12:00:01")
    assert lines[2].text.startswith("gpu0 demo: serving, release 3, release 4 gets 10%")


def test_an_unreachable_host_is_no_answer_and_a_server_that_does_not_serve_is_one() -> None:
    away = Overview(DeploymentStatus("demo", "unreachable"), "gpu2")
    assert overviews_exit([SERVING]) == ExitCode.FINE
    assert overviews_exit([SERVING, away]) == ExitCode.UNREACHABLE
    assert overviews_exit([changed(state="failed"), away]) == ExitCode.NO


def test_durations_are_in_the_two_largest_units() -> None:
    assert [duration(each) for each in (0.4, 61, 7200, 90061)] == ["0 s", "1 min 1 s", "2 h", "1 d 1 h"]


def test_history_tells_when_who_and_what() -> None:
    entry = Entry("2026-11-30T02:24:43.100Z", "ann", "desk", "failed", 3, {"cause": "no room", "kept": None})
    assert [line.text for line in history_lines([entry])] == [
        "2026-11-30 02:24:43  ann@desk  failed release 3 (cause: no room)"
    ]


def test_a_comparison_keeps_lines_of_diffs_whole() -> None:
    long = "+" + "x" * 200
    difference = {"kind": "nginx", "what": "a was changed by hand", "diff": [long]}
    found = {"deployment": "demo", "host": "local", "release": 3, "same": False, "changes": [], "drift": [difference]}
    assert [line.text for line in comparison_lines(found)] == [
        "demo: changed on the host since release 3 was deployed",
        "  a was changed by hand",
        f"    {long}",
    ]


def test_a_container_changed_by_hand_is_told_with_the_way_back() -> None:
    difference = {"kind": "container", "what": "container c is not as it was made", "diff": []}
    found = {"deployment": "demo", "host": "gpu1", "release": 3, "same": False, "changes": [], "drift": [difference]}
    told = [line.text for line in comparison_lines(found, several_hosts=True)]
    assert told[-1] == "  next: onecat restart demo --host gpu1   (makes it anew, as it was written)"


def test_a_diff_shows_no_secret_and_keeps_addresses() -> None:
    shown = without_secrets("+HF_TOKEN=hf_abcdefgh server 10.0.0.5:8000 http://u:pw@proxy.test:3128/ --api-key abc123")
    assert shown == (
        "+HF_TOKEN=[redacted] server 10.0.0.5:8000 http://[redacted]@proxy.test:3128/ --api-key [redacted]"
    )
