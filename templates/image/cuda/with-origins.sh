#!/bin/sh
# with-origins COMMAND...: runs a command of a build stage that knows where packages come from: pip's own configuration
# and a folder of files from /origins, and the certificate that the build trusts besides the system's.
set -eu
if [ -f /origins/pip.conf ]; then
    PIP_CONFIG_FILE=/origins/pip.conf
    export PIP_CONFIG_FILE
fi
if [ -d /origins/packages ]; then
    PIP_FIND_LINKS=/origins/packages
    export PIP_FIND_LINKS
fi
if [ -n "${ONECAT_OFFLINE-}" ]; then
    PIP_NO_INDEX=1
    export PIP_NO_INDEX
fi
if [ -n "${TORCH_INDEX_URL-}" ]; then
    PIP_EXTRA_INDEX_URL="${PIP_EXTRA_INDEX_URL-} $TORCH_INDEX_URL"
    export PIP_EXTRA_INDEX_URL
fi
if [ -n "${CA_CERTIFICATE-}" ]; then
    trusted=$(mktemp)
    {
        cat /etc/ssl/certs/ca-certificates.crt 2>/dev/null || true
        printf %s "$CA_CERTIFICATE" | base64 --decode
    } >"$trusted"
    PIP_CERT=$trusted
    GIT_SSL_CAINFO=$trusted
    SSL_CERT_FILE=$trusted
    export PIP_CERT GIT_SSL_CAINFO SSL_CERT_FILE
fi
exec "$@"
