"""Steps read from what the two builders print."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onecat.images.build_progress import BuildkitProgress, ClassicProgress, Progress, Step, shortened

CLASSIC = """\
Step 1/5 : FROM base:1 AS build
 ---> de3a900a3782
Step 2/5 : RUN pip install torch
 ---> Using cache
 ---> 9608fb01cd10
Step 3/5 : RUN make
 ---> Running in 0a5afc07ae81
compiling one
Removing intermediate container 0a5afc07ae81
 ---> f7989abfb06e
Step 4/5 : FROM base:1
 ---> de3a900a3782
Step 5/5 : COPY --from=build /x /x
""".splitlines()

# Docker 20.10 and 28 differ in the spaces before the number and in the names of what is not a step.
BUILDKIT = """\
#1 [internal] load build definition from Dockerfile
#1 transferring dockerfile: 2B done
#1 DONE 0.0s

#5 [build  1/12] FROM docker.io/library/base:1
#5 CACHED

#6 [build  2/12] RUN pip install torch
#6 0.412 Collecting torch
#6 12.31 Successfully installed torch

#9 [stage-1 2/3] RUN useradd onecat
#9 0.200 adding

#6 DONE 12.9s

#9 DONE 0.3s

#11 exporting to image
#11 exporting layers 3.1s done
#11 DONE 3.2s
""".splitlines()


def read(progress: Progress, lines: Sequence[str], seconds: float = 10.0) -> Progress:
    for number, line in enumerate(lines):
        progress.read(line, number * seconds)
    progress.finish(len(lines) * seconds)
    return progress


def test_the_classic_builders_steps() -> None:
    said: list[str] = []
    steps = read(ClassicProgress(said.append), CLASSIC, 1.0).steps
    assert steps == (
        Step("build", 1, 5, "FROM base:1 AS build", 2.0),
        Step("build", 2, 5, "RUN pip install torch", 3.0, cached=True),
        Step("build", 3, 5, "RUN make", 5.0),
        Step("stage-1", 4, 5, "FROM base:1", 2.0),
        Step("stage-1", 5, 5, "COPY --from=build /x /x", 1.0),
    )
    assert said == [
        "build: step 1 of 5: FROM base:1 AS build",
        "build: step 2 of 5: RUN pip install torch",
        "build: step 2 of 5: cached",
        "build: step 3 of 5: RUN make",
        "build: step 3 of 5: done in 5 s",
        "stage-1: step 4 of 5: FROM base:1",
        "stage-1: step 5 of 5: COPY --from=build /x /x",
    ]


def test_buildkits_steps_run_at_the_same_time() -> None:
    said: list[str] = []
    steps = read(BuildkitProgress(said.append), BUILDKIT).steps
    assert steps == (
        Step("build", 1, 12, "FROM docker.io/library/base:1", 0.0, cached=True),
        Step("build", 2, 12, "RUN pip install torch", 12.9),
        Step("stage-1", 2, 3, "RUN useradd onecat", 0.3),
    )
    assert said == [
        "build: step 1 of 12: FROM docker.io/library/base:1",
        "build: step 1 of 12: cached",
        "build: step 2 of 12: RUN pip install torch",
        "stage-1: step 2 of 3: RUN useradd onecat",
        "build: step 2 of 12: done in 13 s",
        "exporting to image",
    ]


def test_the_failed_steps_own_words_are_kept_apart() -> None:
    progress = BuildkitProgress(lambda line: None)
    lines = [*BUILDKIT[:12], "#9 [stage-1 2/3] RUN useradd onecat", "#9 0.2 adding", "#6 13.0 it broke"]
    lines += ["#6 ERROR: exit code: 3", "------", " > [build  2/12] RUN pip install torch:", "------"]
    read(progress, [*lines, "failed to solve: exit code: 3"])
    assert progress.current is not None and progress.current.instruction == "RUN pip install torch"
    assert progress.output == ["Collecting torch", "Successfully installed torch", "it broke"]


def test_without_a_failed_step_the_builders_own_words_count() -> None:
    """As when a base image is not found, or the docker command has no BuildKit."""
    progress = read(BuildkitProgress(lambda line: None), ["ERROR: BuildKit is enabled but buildx is missing", ""])
    assert progress.current is None
    assert progress.output == ["ERROR: BuildKit is enabled but buildx is missing"]


def test_the_running_step_is_known_while_it_runs() -> None:
    classic, buildkit = ClassicProgress(lambda line: None), BuildkitProgress(lambda line: None)
    assert classic.current is None and buildkit.current is None
    classic.read("Step 3/5 : RUN make", 0)
    classic.read("compiling one", 1)
    buildkit.read("#6 [2/3] RUN make", 0)
    assert classic.current == Step("", 3, 5, "RUN make") and classic.output == ["compiling one"]
    assert buildkit.current == Step("", 2, 3, "RUN make") and buildkit.current.place == "step 2 of 3"


@pytest.mark.parametrize("progress", [ClassicProgress, BuildkitProgress])
def test_lines_of_no_known_form_are_no_steps(progress: type[ClassicProgress] | type[BuildkitProgress]) -> None:
    assert read(progress(lambda line: None), ["", "#", "#x y", "Step", "Step 1 of", "[1/2]", "\x00", "#7 "]).steps == ()


def test_a_long_instruction_becomes_one_short_line() -> None:
    assert len(shortened("RUN " + "x" * 200)) == 50 and shortened("RUN a \\\n  b") == "RUN a \\ b"
