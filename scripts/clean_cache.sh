#!/bin/sh
# Remove what the tests keep between runs.
set -eu
cache=${ONECAT_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/onecat-tests}
# The mark is written by tests/testbed/cache.py: a folder of somebody else is never removed.
if [ -e "$cache/.onecat-test-cache" ]; then rm -rf "$cache"; echo "removed $cache"; else echo "nothing to remove at $cache"; fi
