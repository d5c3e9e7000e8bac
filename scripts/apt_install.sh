#!/bin/sh
# As root: install Debian or Ubuntu packages without starting or enabling any service: scripts/apt_install.sh PACKAGE...
set -eu
policy=/usr/sbin/policy-rc.d
mark='onecat: no service starts while its test packages are installed'

# invoke-rc.d and deb-systemd-invoke ask this program first: 101 forbids the action.
# Source: https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
forbid_services() {
    if [ -e "$policy" ] && ! grep -q "$mark" "$policy"; then mv "$policy" "$policy.onecat-saved"; fi
    printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
}
restore_services() {
    rm -f "$policy"
    if [ -e "$policy.onecat-saved" ]; then mv "$policy.onecat-saved" "$policy"; fi
}

before=$(mktemp)
trap 'restore_services; rm -f "$before"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

enabled_units() { find /etc/systemd/system -path '*.wants/*' -printf '%f\n' 2>/dev/null | sort -u; }

printf 'onecat: installing system packages: %s\n' "$*" >&2
forbid_services
enabled_units >"$before"
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
# A broken third-party source must not stop us: the install below says what is really missing.
apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 update </dev/null >&2 ||
    printf 'onecat: apt-get update reported errors; going on with what it has\n' >&2
apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 -o Dpkg::Use-Pty=0 \
    install --no-install-recommends "$@" </dev/null >&2
if [ -d /run/systemd/system ]; then # systemd runs: what is enabled now would start with the next boot
    for unit in $(enabled_units | comm -13 "$before" -); do
        systemctl --quiet disable "$unit" </dev/null
        printf 'onecat: installed but not enabled: %s\n' "$unit" >&2
    done
fi
