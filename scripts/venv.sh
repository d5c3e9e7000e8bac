#!/bin/sh
# Make .venv with onecat (editable) and a locked set of packages: scripts/venv.sh core|dev
# dev holds core. Returns at once when neither the lock, pyproject.toml nor the interpreter has changed.
set -eu
cd "$(dirname "$0")/.."
packages=$1
venv=.venv

say() { printf 'onecat: %s\n' "$*" >&2; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" || { say "PYTHON=$PYTHON is not a Python 3.10 or newer"; exit 2; }
    python=$PYTHON
else
    python=
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if is_new_enough "$candidate"; then python=$candidate; break; fi
    done
    [ -n "$python" ] || { say "no Python 3.10 or newer found; install one, or name it: make venv PYTHON=/path/to/python3"; exit 2; }
fi

stamp_of() {
    { cat "requirements/$1.lock" pyproject.toml; "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; } |
        sha256sum | cut -d ' ' -f 1
}

is_current() { [ "$(cat "$venv/.onecat-$1" 2>/dev/null)" = "$(stamp_of "$1")" ] && [ -x "$venv/bin/onecat" ]; }

is_usable() { # by the same interpreter, with pip
    [ "$("$venv/bin/python" -c 'import sys, pip; print(sys.version, sys.base_prefix)' 2>/dev/null)" = \
        "$("$python" -c 'import sys; print(sys.version, sys.base_prefix)')" ]
}

if is_current "$packages"; then exit 0; fi

if ! is_usable; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian and Ubuntu ship ensurepip apart, in a package per Python version.
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
            sh scripts/apt_install.sh "$package"
        else
            say "this Python cannot make virtual environments; type: sudo apt-get install $package"
            exit 2
        fi
    fi
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi

say "installing $(grep -c '==' "requirements/$packages.lock") locked packages into $venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --require-hashes \
    -r "requirements/$packages.lock"
# The build tools are in the lock, so that nothing is fetched unseen to build onecat itself.
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .

stamp_of "$packages" >"$venv/.onecat-$packages"
if [ "$packages" = dev ]; then stamp_of core >"$venv/.onecat-core"; fi
