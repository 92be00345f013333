#!/bin/sh
# Runs qemu-iotests' cases for the NBD protocol against `parda serve` in place of qemu-nbd.
#
#     tools/suites/qemu.sh SOURCES [TEST...]
#
# SOURCES is a tree of qemu (tests/qemu-iotests is enough, and python/ for tests in Python); qemu's programs on the PATH
# should be of its version. PARDA is the binary, target/release/parda if not set. A test that was not for raw images
# over NBD counts as not run; one in which qemu-nbd itself served says so.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sources=$(realpath "${1:?SOURCES: a tree of qemu}")
shift
PARDA=$(realpath "${PARDA:-$here/../../target/release/parda}")
QEMU_NBD_REAL=$(command -v qemu-nbd)
QEMU_REAL=$(command -v "qemu-system-$(uname -m)")
QEMU_IMG_PROG=$(command -v qemu-img)
QEMU_IO_PROG=$(command -v qemu-io)
QSD_PROG=$(command -v qemu-storage-daemon)
QEMU_NBD_PROG=$here/qemu-nbd
NOT_PARDA=$(mktemp)
TEST_DIR=$(mktemp -d)
# Distributions build qemu without the accelerator qtest; the tests do without.
QEMU_PROG=$TEST_DIR/$(basename "$QEMU_REAL")
cat >"$QEMU_PROG" <<END
#!/bin/bash
exec $QEMU_REAL "\${@/qtest/tcg}"
END
chmod +x "$QEMU_PROG"
export PARDA QEMU_NBD_REAL QEMU_PROG QEMU_IMG_PROG QEMU_IO_PROG QSD_PROG QEMU_NBD_PROG NOT_PARDA TEST_DIR
trap 'rm -rf "$TEST_DIR" "$NOT_PARDA" "$NOT_PARDA.log"' EXIT
cd "$sources/tests/qemu-iotests"
# Those for any format and protocol, and those that name both.
tests=${*:-$(grep -lE '^_supported_fmt .*(generic|raw)' [0-9][0-9][0-9] | xargs grep -lE '^_supported_proto .*(generic|nbd)')}
failed=0
for test in $tests; do
    : >"$NOT_PARDA"
    timeout 300 ./check -raw -nbd "$test" >"$NOT_PARDA.log" 2>&1 || true
    by=$(sort "$NOT_PARDA" | uniq | tr '\n' ' ')
    if grep -q "^Passed all 1 " "$NOT_PARDA.log"; then
        echo "ok      $test    served by: ${by:-nobody}"
    elif grep -q "^Not run" "$NOT_PARDA.log"; then
        echo "not run $test"
    elif [ -f "$TEST_DIR/$test.out.bad" ] && sort "$TEST_DIR/$test.out.bad" >"$NOT_PARDA.log" && sort "$test.out" | cmp -s - "$NOT_PARDA.log"; then
        # qemu with the accelerator tcg says SHUTDOWN before it answers "quit".
        echo "ok      $test    served by: ${by:-nobody}    in another order"
    else
        failed=1
        echo "FAILED  $test    served by: ${by:-nobody}"
        sed 's/^/        /' "$NOT_PARDA.log" | head -40
    fi
done
exit $failed
