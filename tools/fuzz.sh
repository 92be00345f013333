#!/usr/bin/env bash
# Fuzzes every target: for SECONDS each (default 15), or with --runs until all targets together
# have run N times. Needs a nightly toolchain and cargo-fuzz.
# usage: tools/fuzz.sh [SECONDS | --runs N]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --runs ]; then
  runs_in_all=${2:?tools/fuzz.sh --runs needs a number}
else
  seconds=${1:-15}
fi

if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: skipped, no nightly toolchain (rustup toolchain install nightly)"
  exit 0
fi
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz

# libFuzzer itself: clang's, if it is installed. Else cargo builds it, optimised where that is most of the time.
libfuzzer=$(clang --print-file-name="libclang_rt.fuzzer-$(uname -m).a" 2>/dev/null || true)
if [ -f "$libfuzzer" ]; then
  export CUSTOM_LIBFUZZER_PATH=$libfuzzer
elif [ -n "${runs_in_all:-}" ]; then
  export CXXFLAGS="${CXXFLAGS:+$CXXFLAGS }-O2"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
mapfile -t targets < <(cargo +nightly fuzz list)
if [ -n "${runs_in_all:-}" ]; then
  bound=-runs=$(((runs_in_all + ${#targets[@]} - 1) / ${#targets[@]}))
else
  bound=-max_total_time=$seconds
fi
# The longest input: what a target looks at, with some room.
declare -A longest=([exchange_slot]=4096 [exchange_datagram]=1280 [nbd_client]=10240 [nbd_server]=8192 [vhost_queue]=4096)
total=0
for target in "${targets[@]}"; do
  # What is found goes to the corpus, which is not kept; what is kept are the seeds.
  mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
  # The sanitizer would only watch code that has no unsafe.
  if ! cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" --sanitizer none -- "$bound" \
    -max_len="${longest[$target]:?}" -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 >"$log" 2>&1; then
    cat "$log"
    echo "fuzz: $target failed; the input is in fuzz/artifacts/$target"
    exit 1
  fi
  runs=$(awk '/number_of_executed_units/ { print $2 }' "$log")
  echo "fuzz: $target, ${runs:?no runs} runs, nothing found"
  total=$((total + runs))
done
echo "fuzz: $total runs in all"
