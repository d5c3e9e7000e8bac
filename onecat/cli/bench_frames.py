"""What a comparison and a sweep run in: what sends the load, the result file, and the way back from variants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.cli import bench_options as options
from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.records import Experiment, Kind, Objectives
    from onecat.experiments.results import ResultFile
    from onecat.experiments.targets import Target
    from onecat.experiments.variants import Variant, VariantServers

_OF_WHAT_SERVES = ("patches", "image", "runtime")
_WHOLE = {"ab": "comparison of A with B", "sweep": "sweep"}


@dataclass(frozen=True)
class Frame:
    """How an experiment is run.

    path: of its result file. request_seconds: after so many a request has timed out. pin: whether what sends the load
    stays on cores of its own. cut_off: what is in the file already, of an experiment that goes on.
    """

    kind: Kind
    path: Path
    request_seconds: float
    pin: bool
    cut_off: Experiment | None = None

    @property
    def again(self) -> str:
        """The command that goes on with it."""
        return f"onecat bench {self.kind} --resume {self.path}"

    @property
    def original(self) -> int | None:
        """The release that is to serve in the end, of an experiment with variants that goes on."""
        number = None if self.cut_off is None else self.cut_off.settings["original_release"]
        return None if number is None else int(number)

    def variants(self, serves: Target, variants: Mapping[str, Variant], direct: bool) -> VariantServers:
        """Servers for variants of a deployment; nothing is started yet. Raises OnecatError for what cannot be."""
        from onecat.experiments.variants import VariantServers

        return VariantServers(serves, variants, console.progress, direct, self.original)

    @contextlib.contextmanager
    def opened(
        self,
        arms: dict[str, Target],
        settings: Mapping[str, Any],
        objectives: Objectives | None = None,
        variants: VariantServers | None = None,
    ) -> Iterator[tuple[LoadDriver, ResultFile]]:
        """What sends the load, and the result file, while the block runs; at its end what served before serves again.

        Parameters:
            arms: the servers, as they are written down. settings: by which it can go on.

        Raises OnecatError, also where one that goes on would do so under other conditions.
        """
        from onecat.experiments.records import Objectives
        from onecat.experiments.results import ResultFile
        from onecat.experiments.resuming import check_same_conditions
        from onecat.experiments.targets import environment_of, open_driver

        console.progress("starting the engine's own benchmark, which sends the load")
        with contextlib.ExitStack() as stack:
            driver = stack.enter_context(
                open_driver(*arms.values(), request_seconds=self.request_seconds, pin=self.pin)
            )
            environment = environment_of(driver, arms)
            if self.cut_off is None:
                known = {
                    **settings,
                    "request_timeout": self.request_seconds,
                    "pin": self.pin,
                    "original_release": None if variants is None else variants.original,
                }
                file = ResultFile.create(self.path, self.kind, environment, known, objectives or Objectives())
            else:
                # Of variants, what is not planned is known of what serves; after a hard end that may be a variant.
                serving = next(iter(arms.values())).release
                is_variant = variants is not None and serving is not None and serving.number != variants.original
                unsure = _OF_WHAT_SERVES if is_variant else ()
                for line in check_same_conditions(self.cut_off, environment, self.again, unsure):
                    console.progress(line)
                file = ResultFile.open_to_resume(self.path)
            stack.enter_context(file)
            console.progress(f"if it is cut off: {self.again}")
            if variants is not None:
                stack.enter_context(variants)
            yield driver, file


def frame_of_cut_off(name: Path, kind: Kind) -> tuple[Frame, Experiment]:
    """The frame of an experiment that goes on, and what is in its file. Raises OnecatError for another kind's file, and
    for one that is finished."""
    from onecat.experiments.places import find_result

    path = find_result(str(name))
    experiment = options.read_back(path)
    if experiment.kind != kind:
        raise OnecatError(
            f"this is no {_WHOLE[kind]}, but of kind {experiment.kind}",
            where=str(path),
            next_steps=[f"onecat bench report {path}"],
        )
    if experiment.finished_at is not None:
        from onecat.experiments.results import finished_already

        raise finished_already(experiment, path)
    return Frame(kind, path, *options.sending_as_before(experiment.settings), experiment), experiment
