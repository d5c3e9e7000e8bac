#!/bin/sh
# Everything from a bare Debian or Ubuntu to a verdict: packages, virtual environment, linters, types, imports, tests.
# Without root: linters and unit tests only, said plainly, and a non-zero exit.
set -eu
cd "$(dirname "$0")/.."
cache=${ONECAT_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/onecat-tests}
say() { printf 'onecat: %s\n' "$*" >&2; }

if [ "$(id -u)" -eq 0 ]; then root=yes; else root=no; fi
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH
# The tests start onecat thousands of times: without byte code each would compile all of it again.
unset PYTHONDONTWRITEBYTECODE

if [ $root = yes ]; then
    say "all tests: the first run downloads about 1 GB and needs about 12 GB of disk, 5 GB of it kept in $cache"
    missing=
    need() { missing="$missing $*"; }
    command -v nginx >/dev/null || need nginx
    command -v sshd >/dev/null || need openssh-server
    command -v ssh >/dev/null || need openssh-client
    command -v debootstrap >/dev/null || need debootstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need debian-archive-keyring
    command -v dockerd >/dev/null || need docker.io
    command -v iptables >/dev/null || need iptables
    command -v ip >/dev/null || need iproute2
    command -v gcc >/dev/null || need gcc
    command -v g++ >/dev/null || need g++
    [ -e /usr/include/stdio.h ] || need libc6-dev
    ldconfig -p | grep -q 'libnuma\.so\.1' || need libnuma1
    command -v systemd-analyze >/dev/null || need systemd
    command -v busybox >/dev/null || need busybox
    command -v tcsh >/dev/null || need tcsh
    command -v fish >/dev/null || need fish
    if [ -n "$missing" ]; then
        command -v apt-get >/dev/null || { say "missing, and no apt-get to install them:$missing"; exit 2; }
        # shellcheck disable=SC2086 # a list of package names
        sh scripts/apt_install.sh $missing
    fi
else
    say "not root: skipping every test under tests/testbed (real dockerd, nginx, sshd, vLLM); they need: sudo make test"
fi

sh scripts/venv.sh dev

failed=
.venv/bin/ruff check --quiet . || failed="$failed ruff-check"
.venv/bin/ruff format --quiet --check . || failed="$failed ruff-format"
.venv/bin/mypy || failed="$failed mypy"
.venv/bin/mypy --no-warn-unused-configs tests/unit/live || failed="$failed mypy-of-tests"
.venv/bin/lint-imports --no-cache || failed="$failed lint-imports"
if [ -n "$failed" ]; then say "failed before any test ran:$failed"; exit 1; fi

# Unit tests share nothing, so each core runs some. Those of the testbed share daemons and wait more than they compute:
# those with a dockerd run beside the others, and those that measure come last, alone.
units=0
.venv/bin/python -m pytest -n auto --dist worksteal tests/unit || units=$?
if [ $root = yes ]; then
    # A run that somebody ended is over; one with failures still tells what the testbed finds.
    [ $units -le 1 ] || exit $units
    testbed=0
    printed=$(mktemp)
    .venv/bin/python -m pytest -m 'docker and not measures' tests/testbed >"$printed" 2>&1 &
    beside=$!
    trap 'kill -INT $beside 2>/dev/null; wait $beside; cat "$printed"; rm -f "$printed"; exit 130' INT TERM
    .venv/bin/python -m pytest -m 'not docker and not measures' tests/testbed || testbed=$?
    wait $beside || testbed=$?
    cat "$printed"
    rm -f "$printed"
    trap - INT TERM
    [ $testbed -le 1 ] || exit $testbed
    .venv/bin/python -m pytest -m measures tests/testbed || testbed=$?
    [ $testbed -eq 0 ] || exit $testbed
    [ $units -eq 0 ] || say "the testbed's tests passed, but unit tests failed: see above"
    exit $units
fi
[ $units -eq 0 ] || exit $units
say "the unit tests passed, but the tests that need root were skipped: this is not a full pass"
exit 1
