#!/bin/sh
# Installs the Debian packages of packages.txt whose programs are missing. Without root or apt-get, it prints them, and the tests that need them fail.
set -eu
missing=$(grep -v '^#' "$(dirname "$0")/packages.txt" | while read -r program package; do
    command -v "$program" >/dev/null || echo "$package"
done | sort -u | tr '\n' ' ')
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "packages: missing: ${missing% }; install them as root, or the tests of the review page, of deploy/, of fleets and with PostgreSQL fail" >&2
    exit 0
fi
echo "installing Debian's $missing"
apt-get update -qq
# shellcheck disable=SC2086  # words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
