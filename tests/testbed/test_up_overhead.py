"""What onecat adds to a start stays small; bench/up_overhead.py measures it on a machine at rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.up_overhead import compare, told
from tests.testbed.command import Onecat
from tests.testbed.test_up_container import server_image

__all__ = ["server_image"]

# The limit is 2 s on a machine at rest; the tests share theirs with others.
MOST_SECONDS = 6.0


@pytest.mark.measures
def test_up_takes_little_longer_than_the_same_container_by_hand(
    onecat_with_docker: Onecat, server_image: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    found = compare(onecat_with_docker, server_image, tmp_path / "files", rounds=2)
    print("\n".join(told(found)))
    assert found.by_hand < found.onecat
    assert found.overhead < MOST_SECONDS, told(found)
