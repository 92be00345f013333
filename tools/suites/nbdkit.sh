#!/bin/sh
# Runs nbdkit's own tests against `parda serve` in place of nbdkit: those of its plugins memory, null, file and nbd
# with libnbd's and qemu's clients.
#
#     tools/suites/nbdkit.sh SOURCES [TEST...]
#
# SOURCES is a tree of nbdkit that was configured (./configure): its tests/functions.sh is needed. PARDA is the binary,
# target/release/parda if not set. Needs nbdkit, nbdsh, qemu-img, jq, socat and certtool. A test that asked nbdkit itself for a part
# says for which.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sources=${1:?SOURCES: a tree of nbdkit that was configured}
shift
PARDA=$(realpath "${PARDA:-$here/../../target/release/parda}")
NBDKIT_REAL=$(command -v nbdkit)
NOT_PARDA=$(mktemp)
BY_PARDA=$NOT_PARDA.by
export PARDA NBDKIT_REAL NOT_PARDA BY_PARDA
# The stand-in is the first nbdkit, and python3 the one that nbdsh was built for.
PATH=$here:/usr/bin:$PATH
cd "$sources/tests"
[ -f pki/ca-cert.pem ] || ./make-pki.sh >/dev/null 2>&1
[ -f disk ] || { truncate -s 100M disk && mke2fs -q disk; }
[ -f file-data ] || ./generate-file-data.sh >/dev/null 2>&1 || true
tests=${*:-client-death file file-extents ipv4-lo ipv6-lo long-name nbd-extents nbd-qcow2 nbd-tls null-extents
    parallel-nbd random-sock single start tls}
failed=0
for test in $tests; do
    : >"$NOT_PARDA"
    : >"$BY_PARDA"
    status=0
    host=127.0.0.1
    [ "$test" != ipv6-lo ] || host='[::1]'
    PARDA_HOST=$host timeout 120 bash "./test-$test.sh" >"$NOT_PARDA.log" 2>&1 </dev/null || status=$?
    by=$(sort "$BY_PARDA" | uniq -c | tr -s ' \n' ' ')
    case $status in
    0) echo "ok      $test    ${by:-not parda}" ;;
    77) echo "not run $test    $(grep -v '^+' "$NOT_PARDA.log" | head -1)" ;;
    *)
        failed=1
        echo "FAILED  $test    ${by:-not parda}"
        tail -15 "$NOT_PARDA.log" | sed 's/^/        /'
        ;;
    esac
    others=$(grep -v -e --version -e --dump "$NOT_PARDA" | sort | uniq | tr '\n' ' ')
    [ -z "$others" ] || echo "        in part by nbdkit itself: $others"
done
exit $failed
