"""What is said of several GPUs alike is shown once."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import Finding
from onecat.render.grouping import grouped


def persistence(index: int) -> Finding:
    return Finding(
        "gpu.persistence",
        "warn",
        "Persistence is off",
        f"GPU {index}",
        (f"GPU {index} at 0000:{index:02x}:00.0",),
        fix=(f"sudo nvidia-smi -i {index} -pm 1", "nvidia-smi -q"),
    )


def test_eight_gpus_with_one_fault_are_one_finding() -> None:
    (finding,) = grouped(map(persistence, range(8)))
    assert finding.subject == "GPU 0, 1, 2, 3, 4, 5, 6, 7"
    assert finding.fix == ("sudo nvidia-smi -i 0,1,2,3,4,5,6,7 -pm 1", "nvidia-smi -q")
    assert len(finding.evidence) == 8


def test_what_differs_stays_apart() -> None:
    first, second = persistence(0), persistence(1)
    others = [
        replace(second, title="Persistence is on"),
        replace(second, status="info"),
        replace(second, fix=("sudo nvidia-smi -i 0 -pm 1", "nvidia-smi -q")),
        replace(second, subject="0000:3b:00.0"),
        replace(second, subject=""),
    ]
    for other in others:
        assert grouped([first, other]) == (first, other)


def test_the_order_is_kept() -> None:
    other = Finding("os.release", "warn", "Old")
    assert [each.subject for each in grouped([persistence(3), other, persistence(1)])] == ["GPU 3, 1", ""]


def test_a_lone_finding_is_left_as_it_is() -> None:
    assert grouped([persistence(5)]) == (persistence(5),)
    assert grouped([]) == ()
