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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in $(cargo +nightly fuzz list); do
  # The sanitizer would only watch code that has no unsafe.
  if ! cargo +nightly fuzz run "$target" --sanitizer none -- -max_total_time="$seconds" \
    -max_len=8192 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 >"$log" 2>&1; then
    cat "$log"
    echo "fuzz: $target failed; the input is in fuzz/artifacts/$target"
    exit 1
  fi
  runs=$(awk '/number_of_executed_units/ { print $2 }' "$log")
  echo "fuzz: $target, ${runs:?no runs} runs in $seconds s, nothing found"
done
