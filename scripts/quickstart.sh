#!/bin/sh
# Set everything up and run the main job on this machine.
set -eu
cd "$(dirname "$0")/.."
cat >&2 <<'TEXT'
onecat quickstart: a virtual environment (.venv), a native vLLM for the CPU, the small model of this checkout, and one
chat completion. The first run downloads about 0.6 GB and needs about 3 GB of disk; later runs download nothing.
Ctrl-C at any time: the same command goes on from there. ONECAT_HOME=/some/where moves all but .venv to another disk.
TEXT
PATH=$PATH:/usr/sbin:/sbin
export PATH
# vLLM's CPU kernels need it. Without root onecat itself says what to type.
if ! ldconfig -p | grep -q 'libnuma\.so\.1' && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    sh scripts/apt_install.sh libnuma1
fi
sh scripts/venv.sh core
exec .venv/bin/onecat quickstart
