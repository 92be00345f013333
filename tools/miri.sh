#!/usr/bin/env bash
# Runs under Miri the code of the data path that has `unsafe` in it or works on such memory: buffers and batches.
# io_uring and sockets are the kernel's, which Miri does not have.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
  echo "miri: skipped, no nightly toolchain with Miri (rustup toolchain install nightly --component miri)"
  exit 0
fi
# Miri's clock and entropy are its own, unless it is told otherwise.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
cargo +nightly miri test --locked --package parda-block --lib -- buffer:: batch:: "$@"
