"""Reading /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from onecat.deploy import processes


def test_a_stat_line_is_read_although_the_name_holds_parentheses() -> None:
    line = "42 (a) (b c) S 7 42 41 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 1000 100 rest"
    assert processes.parse_stat(line) == processes.ProcessEntry(42, 7, 42, 41, "S", 12345, 100)


def test_this_process_is_alive_and_another_start_time_is_not_it() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    assert processes.alive(me)
    assert not processes.alive(me._replace(start_ticks=me.start_ticks - 1))
    assert not processes.alive(me._replace(boot_id="another boot"))


def test_a_child_is_found_and_its_cpu_time_counted_while_it_lives() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        assert child.pid in processes.descendants(os.getpid())
        limit = time.monotonic() + 20
        while processes.usage([child.pid]).cpu_seconds < 0.05:
            assert time.monotonic() < limit
            time.sleep(0.01)
        child.kill()
    assert processes.entry(child.pid) is None
    assert processes.usage([child.pid]) == processes.Usage(0.0, 0, runnable=False)


def test_descendants_of_a_given_table() -> None:
    def row(pid: int, parent: int) -> processes.ProcessEntry:
        return processes.ProcessEntry(pid, parent, pid, pid, "S", 0, 0)

    table = {pid: row(pid, parent) for pid, parent in ((2, 1), (3, 2), (4, 2), (5, 4), (6, 1))}
    assert processes.descendants(2, table) == (3, 4, 5)


def test_a_process_is_found_by_a_variable_it_was_started_with() -> None:
    environment = {**os.environ, "ONECAT_TEST_MARK": "this one"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as child:
        assert processes.with_variable("ONECAT_TEST_MARK", "this one") == (child.pid,)
        assert processes.with_variable("ONECAT_TEST_MARK", "this") == ()
        child.kill()
