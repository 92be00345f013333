#!/usr/bin/env bash
# Measures `parda serve` against qemu-nbd and nbdkit; see usage() below.
set -euo pipefail

usage() {
  cat <<'END'
usage: benches/nbd.sh [--rounds N] [--seconds S] [--size MIB] [--dir DIR]

Measures `parda serve`, with control on, against qemu-nbd and nbdkit's file plugin: 4 KiB random
reads and writes at depth 1, 16 and 64, one connection over a unix socket, with fio's nbd engine.
All servers serve one and the same file, and take turns: A B C A B C. Prints Markdown.

  --rounds N     turns of each server in each row (default 5)
  --seconds S    length of a turn (default 3)
  --size MIB     size of the file (default 512)
  --dir DIR      where the file is: a real disk (default $TMPDIR, or /tmp)
  --help         this

Two cases. In "page cache" all data is in memory, so that the servers' own cost shows. In "direct"
every IO goes to the file system with O_DIRECT, as parda does unless told otherwise. nbdkit's file
plugin has no O_DIRECT and stays out of that one.

PARDA names the binary (default target/release/parda).
END
}

rounds=5 seconds=3 size=512 base=${TMPDIR:-/tmp}
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage; exit 0 ;;
    --rounds|--seconds|--size|--dir)
      [ $# -ge 2 ] || { echo "nbd.sh: $1 needs a value" >&2; exit 2; }
      case $1 in
        --dir) base=$2 ;;
        *) [[ $2 =~ ^[1-9][0-9]*$ ]] || { echo "nbd.sh: $1 $2: must be a whole number" >&2; exit 2; } ;;
      esac
      case $1 in --rounds) rounds=$2 ;; --seconds) seconds=$2 ;; --size) size=$2 ;; esac
      shift 2 ;;
    *) echo "nbd.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done

parda=$(realpath "${PARDA:-target/release/parda}" 2>/dev/null) && [ -x "$parda" ] ||
  { echo "nbd.sh: ${PARDA:-target/release/parda} is not there: run make build" >&2; exit 1; }
for program in fio qemu-nbd nbdkit; do
  command -v $program >/dev/null || { echo "nbd.sh: $program is missing" >&2; exit 1; }
done

dir=$(mktemp -d "$base/nbd-bench.XXXXXX")
declare -A pid=()
stop_servers() {
  for server in "${!pid[@]}"; do
    kill "${pid[$server]}" 2>/dev/null || true
    wait "${pid[$server]}" 2>/dev/null || true
  done
  pid=()
}
trap 'stop_servers; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir"
head -c "${size}M" /dev/urandom >data

# start NAME COMMAND...: runs a server and waits for its socket, NAME.sock
start() {
  local name=$1
  shift
  "$@" >"$name.log" 2>&1 &
  pid[$name]=$!
  for _ in {1..100}; do
    [ -S "$name.sock" ] && return
    sleep 0.1
  done
  echo "nbd.sh: $name does not start:" >&2
  cat "$name.log" >&2
  exit 1
}

start_parda() { # DIRECT
  # A window that never binds: what is measured is what control costs, not what it holds back.
  cat >parda.toml <<END
host = "bench"
[[volume]]
name = "bench"
[volume.control]
mode = "parda"
latency_threshold = "30ms"
window_start = 1024
window_max = 1024
[[volume.disk]]
name = "disk"
path = "data"
listen = "unix:parda.sock"
direct = "$1"
END
  start parda "$parda" serve -c parda.toml
}

start_qemu() { # CACHE
  start qemu-nbd qemu-nbd --persistent --shared=0 --format=raw --export-name=disk \
    --cache="$1" --aio=io_uring --socket="$dir/qemu-nbd.sock" data
}

start_nbdkit() {
  start nbdkit nbdkit --foreground --exportname=disk --unix "$dir/nbdkit.sock" file data
}

cpu_ticks() { # PID: user and system time of all its threads
  awk '{ sub(/^.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

# measure SERVER RW DEPTH: appends "IOPS P50 P99 CPU" (microseconds, CPU per IO) to the results
measure() {
  local server=$1 rw=$2 depth=$3 before after
  before=$(cpu_ticks "${pid[$server]}")
  fio --thread --name=bench --ioengine=nbd --uri="nbd+unix:///disk?socket=$server.sock" --rw="$rw" --bs=4k \
    --size="${size}m" --iodepth="$depth" --time_based --runtime="$seconds" --norandommap \
    --percentile_list=50:99 --output-format=terse --terse-version=3 >fio.out
  after=$(cpu_ticks "${pid[$server]}")
  # Fields of fio's terse format, version 3; those of writes come 41 later.
  awk -F';' -v write=$([ "$rw" = randwrite ] && echo 1 || echo 0) -v ticks=$((after - before)) \
    -v hz="$(getconf CLK_TCK)" '
    $1 == 3 {
      at = write * 41
      if ($5 != 0) { print "fio met error " $5 > "/dev/stderr"; exit 1 }
      ios = $(6 + at) / 4
      split($(18 + at), p50, "="); split($(19 + at), p99, "=")
      printf "%d %d %d %.2f\n", $(8 + at), p50[2], p99[2], ticks / hz * 1e6 / ios
      done = 1
    }
    END { if (!done) exit 1 }' fio.out >>"$server.$rw.$depth" ||
    { echo "nbd.sh: $server: fio failed:" >&2; cat fio.out >&2; exit 1; }
}

# of FILE COLUMN: its median, least and most
of() {
  cut -d' ' -f"$2" "$1" | sort -n |
    awk '{ v[NR] = $1 } END { m = int((NR + 1) / 2); print NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2, v[1], v[NR] }'
}

table() { # CASE RW SERVER...
  local what=$1 rw=$2
  shift 2
  printf '\n### 4 KiB random %ss, %s\n\n' "${rw#rand}" "$what"
  echo '| depth | server | IOPS, median (least to most) | p50 µs | p99 µs | server CPU µs/IO | parda: IOPS | parda: CPU |'
  echo '| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |'
  for depth in 1 16 64; do
    for ((round = 0; round < rounds; round++)); do
      for server in "$@"; do
        measure "$server" "$rw" $depth
      done
    done
    local our_iops our_cpu
    read -r our_iops _ <<<"$(of "parda.$rw.$depth" 1)"
    read -r our_cpu _ <<<"$(of "parda.$rw.$depth" 4)"
    for server in "$@"; do
      local file=$server.$rw.$depth iops least most p50 p99 cpu
      read -r iops least most <<<"$(of "$file" 1)"
      read -r p50 _ <<<"$(of "$file" 2)"
      read -r p99 _ <<<"$(of "$file" 3)"
      read -r cpu _ <<<"$(of "$file" 4)"
      awk -v d=$depth -v s="$server" -v i="$iops" -v l="$least" -v m="$most" -v p="$p50" -v q="$p99" \
        -v c="$cpu" -v oi="$our_iops" -v oc="$our_cpu" 'BEGIN {
          # So little CPU that it does not show: there is nothing to compare.
          times = c > 0 ? sprintf("× %.2f", oc / c) : "–"
          ratio = s == "parda" ? " | |" : sprintf(" × %.2f | %s |", oi / i, times)
          printf "| %d | %s | %d (%d to %d) | %d | %d | %.1f |%s\n", d, s, i, l, m, p, q, c, ratio
        }'
      rm "$file"
    done
  done
}

echo "$(nproc) cores, Linux $(uname -r), $(df --output=fstype . | tail -1); load before: $(cut -d' ' -f1 /proc/loadavg)."
echo "$("$parda" --version), $(qemu-nbd --version | head -1), $(nbdkit --version), $(fio --version);" \
  "$rounds rounds of $seconds s, a file of $size MiB."
echo 'The last two columns: parda over that server, by the medians. CPU is user and system time of the server.'

start_parda off
start_qemu writeback
start_nbdkit
cat data >/dev/null
table 'page cache' randread parda qemu-nbd nbdkit
table 'page cache' randwrite parda qemu-nbd nbdkit
stop_servers
sync data

start_parda on
start_qemu none
table 'direct' randread parda qemu-nbd
table 'direct' randwrite parda qemu-nbd
