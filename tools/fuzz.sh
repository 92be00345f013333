#!/usr/bin/env bash
# Fuzzes every target for SECONDS each (default 15). Needs a nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-15}

if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: skipped, no nightly toolchain (rustup toolchain install nightly)"
  exit 0
fi
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz

for target in $(cargo +nightly fuzz list); do
  echo "fuzz: $target for $seconds s"
  # Kept out of the tree's own target directory: another toolchain, other flags.
  cargo +nightly fuzz run "$target" --sanitizer none -- \
    -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
    2>&1 | grep -E 'stat::number_of_executed_units|panicked|ERROR|SUMMARY|error' || true
  [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "fuzz: $target failed"; exit 1; }
done
