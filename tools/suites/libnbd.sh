#!/bin/sh
# Runs libnbd's own tests against `parda serve` in place of nbdkit.
#
#     tools/suites/libnbd.sh SOURCES [TEST...]
#
# SOURCES is a tree of libnbd that was configured with GnuTLS and built (./configure && make); PARDA the binary,
# target/release/parda if not set. Needs nbdkit, python3, certtool and a C compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sources=${1:?SOURCES: a tree of libnbd that was built}
shift
PARDA=$(realpath "${PARDA:-$here/../../target/release/parda}")
NBDKIT_REAL=$(command -v nbdkit)
NOT_PARDA=$(mktemp)
LD_LIBRARY_PATH=$(realpath "$sources/lib/.libs")
srcdir=.
export PARDA NBDKIT_REAL NOT_PARDA LD_LIBRARY_PATH srcdir
PATH=$here:$PATH
cd "$sources/tests"
tests=${*:-aio-connect aio-connect-port connect-systemd-socket-activation connect-tcp connect-tcp6 connect-tls-certs
    connect-unix connect-uri-nbd connect-uri-nbd-unix connect-uri-nbds-certs connect-uri-nbds-unix-certs errors-bad-cookie
    errors-client-unknown-flags errors-client-zerosize errors-connect-twice errors-not-negotiating
    errors-notify-not-blocked errors-pread-structured errors-server-invalid-offset errors-server-unknown-flags
    errors-server-zerosize get-size opt-abort opt-list-meta opt-list-meta-queries opt-set-meta opt-set-meta-queries
    opt-structured-twice pread-initialize read-only-flag read-write-flag shutdown-flags}
# shellcheck disable=SC2086
make -s $tests
[ -f pki/stamp-pki ] || make -s pki/stamp-pki
failed=0
for test in $tests; do
    : >"$NOT_PARDA"
    host=127.0.0.1
    [ "$test" != connect-tcp6 ] || host='[::1]'
    if PARDA_HOST=$host timeout 60 "./$test" >"$NOT_PARDA.log" 2>&1; then
        echo "ok      $test"
    else
        failed=1
        echo "FAILED  $test"
        tail -5 "$NOT_PARDA.log"
    fi
    # Whether nbdkit can do something (--version, --run) is asked of nbdkit itself.
    others=$(grep -v -e --version -e --run "$NOT_PARDA" | sort | uniq | tr '\n' ' ')
    [ -z "$others" ] || echo "        in part by nbdkit itself: $others"
done
exit $failed
