"""What is applied is told from the files, also where many lines are alike."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from onecat.patching import AppliesTo, Patch, Series, State, Upstream
from onecat.patching.archive import MemorySource
from onecat.patching.record import Record
from onecat.patching.source import SourceFile
from onecat.patching.states import Examination, examine
from onecat.patching.writing import write_diff

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n"]), max_size=25).map(b"".join)
UPSTREAM = Upstream("engine", "1.0", "engine-1.0.tar.gz", "0" * 64, "MIT")


def series_of(versions: list[bytes]) -> Series:
    """The series whose patches lead from each version of a file to the next one."""
    patches = []
    for number, (before, after) in enumerate(zip(versions, versions[1:], strict=False), 1):
        text = write_diff([("x.py", SourceFile(before), SourceFile(after))])
        if text:
            file = f"{number:04d}-step.patch"
            patches.append(Patch(file, "", "", "", AppliesTo(), "", (), (), text))
    return Series("engine-1.0", Path(), UPSTREAM, tuple(patches), ())


def content(examination: Examination, with_series: bool) -> bytes:
    file = (examination.complete if with_series else examination.without).read("x.py")
    assert file is not None
    return file.content


@given(st.lists(LINES, min_size=2, max_size=4))
def test_a_pristine_source_is_never_taken_for_a_patched_one(versions: list[bytes]) -> None:
    found = examine(series_of(versions), MemorySource({"x.py": SourceFile(versions[0])}))
    assert all(state.state is State.APPLIES for state in found.states)
    assert content(found, with_series=False) == versions[0]
    assert content(found, with_series=True) == versions[-1]


@given(st.lists(LINES, min_size=2, max_size=4))
def test_a_patched_source_with_its_record_comes_back_to_the_byte(versions: list[bytes]) -> None:
    series = series_of(versions)
    record = Record(series.name, "", tuple(patch.file for patch in series.patches), 0, {}, {}, ())
    found = examine(series, MemorySource({"x.py": SourceFile(versions[-1])}), record=record)
    assert all(state.state is State.APPLIED for state in found.states)
    assert content(found, with_series=False) == versions[0]
    assert content(found, with_series=True) == versions[-1]
