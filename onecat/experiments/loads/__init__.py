"""Load drivers: programs of others that send requests and time the answers, driven block by block.

In: an endpoint, a workload, how requests arrive. Out: a `Block` of requests with their times and errors. onecat sends
no load itself: that does the engine's own benchmark (`engine`), in the engine's runtime.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from onecat.experiments.records import Arrivals, Block, Endpoint, Workload


class LoadDriver(Protocol):
    """One process that sends one block after the other; a context manager, which closes it.

    Blocks with the same workload are the same requests, whoever sends them.
    """

    def run(
        self,
        endpoint: Endpoint,
        workload: Workload,
        arrivals: Arrivals,
        *,
        number: int,
        arm: str = "",
        warm_up: bool = False,
        stop_after: float | None = None,
    ) -> Block:
        """Send the requests and wait for all answers.

        Parameters:
            number, arm, warm_up: of the block. stop_after: seconds after which no more requests are sent; those that
            were not are missing in the block.

        Raises OnecatError when they cannot be sent (errors of single requests are in the block), and CutShort, a
        KeyboardInterrupt, after Ctrl-C.
        """

    def describe(self) -> dict[str, Any]:
        """What sends the load, with version, where, on which cores: `Environment.driver`."""

    def close(self) -> None:
        """End it; nothing of it stays."""

    def __enter__(self) -> LoadDriver: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class CutShort(KeyboardInterrupt):
    """A Ctrl-C while a block was sent. block: what came until then; None where nothing did."""

    def __init__(self, block: Block | None) -> None:
        super().__init__()
        self.block = block
