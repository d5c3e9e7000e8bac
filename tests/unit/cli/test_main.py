"""Every failure of the command line is one message, one exit code, no traceback; standard output stays for results."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from onecat import __version__
from onecat.cli import application, console, main
from onecat.errors import ExitCode, OnecatError

ONECAT = str(Path(sys.executable).with_name("onecat"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ONECAT, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def test_an_unknown_command_is_a_usage_error_with_the_next_thing_to_type() -> None:
    done = run("upp")
    assert (done.returncode, done.stdout) == (2, "")
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("onecat: No such command 'upp'")
    assert last == "  next:     onecat --help"
    assert "Traceback" not in done.stderr


def test_under_json_an_error_is_a_document_too() -> None:
    done = run("status", "--json", "--no-such-option")
    document = json.loads(done.stdout)
    assert document["schema"] == "onecat.error/1"
    assert document["exit_code"] == done.returncode == 2
    assert "--no-such-option" in document["found"]
    assert document["next"] == ["onecat status --help"]


def test_a_commands_module_has_its_name_and_gives_all_that_the_whole_application_has_of_it() -> None:
    whole = typer.main.get_command(application.build_app())
    assert isinstance(whole, typer.core.TyperGroup)
    for name, command in whole.commands.items():
        alone = typer.main.get_command(application.build_app(name))
        assert isinstance(alone, typer.core.TyperGroup)
        assert list(alone.commands) == [name]
        assert alone.commands[name].help == command.help


def test_a_module_that_has_no_command_and_a_command_that_has_no_module_leave_all_commands_to_choose_from() -> None:
    whole = typer.main.get_command(application.build_app())
    assert isinstance(whole, typer.core.TyperGroup)
    for name in ("console", "upp", "--help", "on/../e", "PLAN"):
        others = typer.main.get_command(application.build_app(name))
        assert isinstance(others, typer.core.TyperGroup)
        assert others.commands.keys() == whole.commands.keys()


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_is_the_answer_to_no_command_and_to_help(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Commands:" in done.stdout


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"onecat {__version__}\n"


def test_help_without_a_terminal_has_no_control_codes() -> None:
    assert "\x1b" not in run("--help").stdout


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_reader_that_goes_away_gets_no_traceback_and_no_answer_of_no(option: str) -> None:
    program = f"import sys, onecat.cli.main as m; sys.argv = ['onecat', '{option}']; sys.stdin.read(); m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.close()  # only now does it go on
    assert (process.stderr.read(), process.wait()) == (b"", 141)


@pytest.mark.parametrize("module", ["typer", "onecat.cli.console"])
def test_ctrl_c_while_onecat_is_still_loaded_gets_no_traceback(module: str) -> None:
    program = f"""
import sys, signal, os
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from onecat.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nonecat: interrupted; type the same command again to go on from here\n"


@pytest.fixture
def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the entry point with one more command, `work`, that does what the test wants."""

    def call(work: Callable[[], None], *arguments: str) -> tuple[int, str, str]:
        real_app = application.build_app

        def build_app(command: str | None = None) -> typer.Typer:
            app = real_app(command)

            @app.command("work")
            def command(json: bool = False) -> None:
                work()

            return app

        monkeypatch.setattr(application, "build_app", build_app)
        monkeypatch.setattr(sys, "argv", ["onecat", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def failing(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("code", list(ExitCode))
def test_an_expected_failure_ends_with_its_own_code_and_all_it_knows(
    run_command: Callable[..., tuple[int, str, str]], code: ExitCode
) -> None:
    error = OnecatError(
        "port 8000 is in use",
        expected="a free port",
        where="127.0.0.1:8000",
        next_steps=["onecat up --port 8001", "onecat down"],
        details=["pid 7 listens"],
        code=code,
    )
    assert run_command(failing(error), "work") == (
        code,
        "",
        "onecat: port 8000 is in use\n"
        "  where:    127.0.0.1:8000\n"
        "  expected: a free port\n"
        "  | pid 7 listens\n"
        "  next:     onecat up --port 8001\n"
        "  next:     onecat down\n",
    )


def test_the_document_of_an_expected_failure_holds_the_same(run_command: Callable[..., tuple[int, str, str]]) -> None:
    error = OnecatError("found this", expected="that", where="here", next_steps=["go"], details=["d"], code=ExitCode.NO)
    code, out, _ = run_command(failing(error), "work", "--json")
    assert json.loads(out) == {
        "schema": "onecat.error/1",
        "found": "found this",
        "expected": "that",
        "where": "here",
        "next": ["go"],
        "details": ["d"],
        "exit_code": code,
    }


def test_a_fault_of_ours_is_told_without_a_traceback(run_command: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run_command(failing(RuntimeError("boom")), "work")
    assert (code, out) == (ExitCode.NEEDS_PERSON, "")
    assert err.startswith("onecat: onecat has a fault: RuntimeError: boom\n")
    assert "--debug" in err and "Traceback" not in err


@pytest.mark.parametrize("arguments", [("--debug", "work"), ("work", "--debug")])
def test_debug_shows_where_a_fault_of_ours_happened(
    monkeypatch: pytest.MonkeyPatch, run_command: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        run_command(failing(RuntimeError("boom")), *arguments)


def test_debug_adds_nothing_to_an_expected_failure(run_command: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = run_command(failing(OnecatError("no", code=ExitCode.NO)), "work", "--debug")
    assert (code, err) == (ExitCode.NO, "onecat: no\n")


def test_a_full_disk_is_told_with_the_place_and_a_way_out(run_command: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = run_command(failing(OSError(errno.ENOSPC, "No space left on device", "/data/x")), "work")
    assert code == ExitCode.NEEDS_PERSON
    assert err.splitlines()[:2] == ["onecat: No space left on device", "  where:    /data/x"]
    assert "ONECAT_HOME" in err


def test_an_interruption_says_how_to_go_on(run_command: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = run_command(failing(KeyboardInterrupt()), "work")
    assert code == 130
    assert "type the same command again" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "silent"),
    [(("work",), False), (("--quiet", "work"), True), (("work", "-q"), True), (("work", "--quiet"), True)],
)
def test_quiet_silences_progress_wherever_it_stands(
    run_command: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], silent: bool
) -> None:
    def work() -> None:
        console.progress("loading")
        print("result")

    assert run_command(work, *arguments) == (0, "result\n", "" if silent else "loading\n")


WORDS = st.lists(st.sampled_from(["up", "--debug", "-q", "--quiet", "--", "--json", "x"]))


@given(WORDS)
def test_global_options_are_taken_out_and_nothing_else_moves(arguments: list[str]) -> None:
    words, options = application.split_global_options(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert options == [each for each in arguments[:end] if each in application.GLOBAL_OPTIONS]
    assert words == [each for each in arguments[:end] if each not in application.GLOBAL_OPTIONS] + arguments[end:]


@pytest.mark.parametrize(
    ("number", "path", "step"),
    [
        (errno.EROFS, "home/cache/wheels", "set ONECAT_HOME to a directory that can be written"),
        (errno.EROFS, "onecat-build", "name a path on a disk that can be written"),
        (errno.EACCES, "home", "set ONECAT_HOME to a directory that can be written"),
        (errno.EACCES, "work/tree", "check the owner and mode of that path"),
        (errno.EEXIST, "file", "correct that path"),
    ],
)
def test_onecat_home_is_only_spoken_of_where_it_is_about_onecats_own_data(
    number: int, path: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path / "home"))
    told = console.as_onecat_error(OSError(number, "no", str(tmp_path / path)))
    assert step in told.next_steps
    assert any("ONECAT_HOME" in each for each in told.next_steps) is path.startswith("home")


def test_a_value_that_is_none_of_the_choices_is_told_with_the_choices() -> None:
    done = run("doctor", "--format", "xml")
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        "onecat: Invalid value for '--format': xml",
        "  expected: one of: text, json, markdown, junit",
    ]
