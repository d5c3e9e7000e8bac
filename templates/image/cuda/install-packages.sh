#!/bin/sh
# install-packages NAME... [-- NAME...]: installs distribution packages, and asks no server where they are all there.
# Names after -- are wanted but not needed. The system's own package sources stay as they are.
# Environment: APT_MIRROR takes the place of the distribution's archive; CA_CERTIFICATE is a PEM file in base64;
# ONECAT_OFFLINE, if not empty, forbids any server.
set -eu

is_missing() {
    [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null)" != installed ]
}

needed=
wanted=
optional=
for name in "$@"; do
    if [ "$name" = -- ]; then
        optional=yes
    elif is_missing "$name"; then
        if [ -n "$optional" ]; then wanted="$wanted $name"; else needed="$needed $name"; fi
    fi
done
if [ -z "$needed$wanted" ]; then exit 0; fi
if [ -n "${ONECAT_OFFLINE-}" ]; then
    if [ -z "$needed" ]; then exit 0; fi
    echo "onecat: found: the base image lacks$needed, and this build may not use a network" >&2
    echo "onecat: expected: a base image that has them" >&2
    echo "onecat: next: make one where there is a network and give it the base image's name, or build without --offline" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/parts" "$work/lists"
set -- -o "Dir::State::Lists=$work/lists" -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o Acquire::Retries=2
if [ -n "${APT_MIRROR-}" ]; then
    mirror=${APT_MIRROR%/}
    # The sources of the distribution itself, known by the last part of their path, with the mirror as their address;
    # those of others are left out: this needs nothing of them.
    own='[a-z+]*://[^ ]*/\(ubuntu\|ubuntu-ports\|debian\)/\{0,1\}\( \|$\)'
    security='[a-z+]*://[^ ]*/debian-security/\{0,1\}\( \|$\)'
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if ! [ -f "$file" ] || ! grep --quiet "$own\|$security" "$file"; then continue; fi
        sed "s#$own#$mirror/\2#g; s#$security#$mirror-security/\1#g" "$file" >"$work/parts/${file##*/}"
    done
    if [ -f "$work/parts/sources.list" ]; then mv "$work/parts/sources.list" "$work/parts/main.list"; fi
    set -- "$@" -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts"
fi
if [ -n "${CA_CERTIFICATE-}" ]; then
    {
        cat /etc/ssl/certs/ca-certificates.crt 2>/dev/null || true
        printf %s "$CA_CERTIFICATE" | base64 --decode
    } >"$work/ca.pem"
    chmod 755 "$work"
    set -- "$@" -o "Acquire::https::CaInfo=$work/ca.pem"
fi

DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
chmod 755 "$work" "$work/lists"
install() {
    # shellcheck disable=SC2086 # a list of names
    apt-get "$@" --quiet --yes --no-install-recommends install $packages
}
apt-get "$@" --quiet update || true
if [ -n "$needed" ]; then
    packages=$needed
    if ! install "$@"; then
        echo "onecat: found: these packages could not be installed:$needed" >&2
        echo "onecat: expected: a package archive that has them, reachable from a build step" >&2
        echo "onecat: next: name one by --apt-mirror URL, a proxy by --proxy URL, or take a base image that has them" >&2
        exit 1
    fi
fi
for packages in $wanted; do
    install "$@" || echo "onecat: goes on without $packages" >&2
done
rm -rf /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
