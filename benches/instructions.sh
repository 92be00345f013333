#!/usr/bin/env bash
# Counts the instructions that one simulated IO takes; see usage() below.
set -euo pipefail

usage() {
  cat <<'END'
usage: benches/instructions.sh [CLUSTER FROM TO]...

Counts instructions per simulated IO with valgrind's callgrind. Unlike a time it does not depend on
what else the machine does: the same program gives the same number to a thousandth. Each cluster
runs for FROM and for TO seconds of its own time, and the difference counts, so that what it takes to
begin and to end cancels out. Prints Markdown.

CLUSTER is one of `cargo run --release -p parda-sim --example speed`. Default: random reads and a
mix on RAID-5 with 4 hosts of 1 VM, and larger clusters.

SPEED names the binary (default target/release/examples/speed).
END
}

[ "${1:-}" != --help ] || { usage; exit 0; }
[ $# -gt 0 ] || set -- reads 20 40 mixed 20 40 64x10 10 20 256x10 10 20 1000x1 4 6 1000x10 24 26
speed=${SPEED:-target/release/examples/speed}

# usage: counted CLUSTER SECONDS; prints IOs and instructions.
counted() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$speed" --once "$1" "$2" 16 2>&1 |
    awk '/refs:/ { gsub(",", ""); refs = $NF } !/^==/ { ios = $1 } END { print ios, refs }'
}

echo '| cluster | simulated s | IOs | instructions per IO |'
echo '| --- | ---: | ---: | ---: |'
while [ $# -gt 2 ]; do
  read -r ios1 refs1 < <(counted "$1" "$2")
  read -r ios2 refs2 < <(counted "$1" "$3")
  echo "| $1 | $2 to $3 | $((ios2 - ios1)) | $(((refs2 - refs1) / (ios2 - ios1))) |"
  shift 3
done
