#!/usr/bin/env bash
# PostgreSQL beside a noisy neighbour on one emulated array, alone, without control and with it. Its data directory is on a disk that parda serves.
# usage: tools/demo-postgres.sh PARDA OUT.tsv [SECONDS]
# Needs root, as it mounts a file system. What it makes is in a temporary directory and ends with it. OUT.tsv has each second.
set -euo pipefail

parda=$(readlink -f "${1:?the parda binary}")
out=$(readlink -f "${2:?the file of the answer}")
seconds=${3:-30}
[ "$(id -u)" -eq 0 ] || { echo 'demo-postgres: mounting a file system needs root' >&2; exit 1; }
pg=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)
[ -n "$pg" ] || { echo 'demo-postgres: no PostgreSQL below /usr/lib/postgresql: install postgresql' >&2; exit 1; }

dir=$(mktemp -d -t parda-postgres.XXXXXX)
chmod 755 "$dir"
pids=()
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }

# In the order in which each rests on the next.
clean() {
  set +e
  as_postgres "$pg/pg_ctl" -D "$dir/mnt/data" -m immediate stop > /dev/null 2>&1
  mountpoint -q "$dir/mnt" && umount "$dir/mnt"
  [ -e "$dir/disk" ] && umount --lazy "$dir/disk" 2> /dev/null
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2> /dev/null; wait "${pids[i]}" 2> /dev/null; done
  rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT TERM

start() { # LOG COMMAND ...
  local log=$dir/$1.log
  shift
  "$@" > "$log" 2>&1 &
  pids+=($!)
}

until_true() { # WHAT COMMAND ...
  local what=$1 i
  shift
  for ((i = 0; i < 300; i++)); do
    "$@" > /dev/null 2>&1 && return
    sleep 0.1
  done
  echo "demo-postgres: waited in vain for $what; logs:" >&2
  tail -n 5 "$dir"/*.log >&2
  exit 1
}

uri() { echo "nbd+unix:///$1?socket=$dir/$2.sock"; }

# Both agents. MODE and THRESHOLD are of the volume; the database may have an objective instead.
configure() { # MODE THRESHOLD [OBJECTIVE]
  local host
  for host in db batch; do
    cat > "$dir/$host.toml" << END
host = "$host"
status = "unix:$dir/$host.status"
[[volume]]
name = "array"
[volume.control]
mode = "$1"
latency_threshold = "$2"
[volume.exchange]
file = "$(uri exchange array)"
[[volume.disk]]
name = "$host"
path = "$(uri lun0 array)"
offset = "$([ $host = db ] && echo 0 || echo 100)GiB"
size = "$([ $host = db ] && echo 8 || echo 100)GiB"
listen = "unix:$dir/$host.sock"
shares = 1000
END
    if [ $host = db ] && [ -n "${3:-}" ]; then echo "latency_target = \"$3\"" >> "$dir/$host.toml"; fi
  done
  for host in "${agents[@]:-}"; do [ -z "$host" ] || kill -HUP "$host"; done
}

neighbour() {
  fio --name=batch --ioengine=nbd --uri="$(uri batch batch)" --rw=randread --bs=8k --iodepth=64 --time_based --runtime=3600 > "$dir/fio.log" 2>&1 &
  fio=$!
  pids+=("$fio")
}

# Transactions of three clients, each second.
measure() { # NAME
  echo "$1: $seconds s ..." >&2
  as_postgres "$pg/pgbench" -h "$dir/run" -n -c 3 -j 1 -T "$((seconds + 10))" -P 1 bench > "$dir/out" 2> "$dir/progress"
  # The first ten seconds are the law's to settle.
  awk -v name="$1" '/^progress:/ && $2 > 10 { print name "\t" $2 - 10 "\t" $4 }' "$dir/progress" >> "$dir/tps.tsv"
}

agents=()
start array "$parda" array --preset drive-7200 --drives 4 --raid raid0 --listen "unix:$dir/array.sock"
until_true 'the array' nbdinfo --size "$(uri lun0 array)"
"$parda" exchange init "$(uri exchange array)" --volume array > /dev/null
configure off 30ms
for host in db batch; do
  start "$host" "$parda" serve -c "$dir/$host.toml"
  agents+=($!)
  until_true "the agent of $host" test -S "$dir/$host.sock"
done

: > "$dir/disk"
start nbdfuse nbdfuse -C 1 "$dir/disk" "$(uri db db)"
until_true 'the disk as a file' test -s "$dir/disk"
mkfs.ext4 -q -E nodiscard "$dir/disk"
mkdir "$dir/mnt" "$dir/run"
mount -o loop "$dir/disk" "$dir/mnt"
chown postgres: "$dir/mnt" "$dir/run"
rmdir "$dir/mnt/lost+found"
echo 'makes a database ...' >&2
as_postgres "$pg/initdb" -D "$dir/mnt/data" --no-sync > "$dir/initdb.log" 2>&1
# Little memory: reads go to the disk.
as_postgres "$pg/pg_ctl" -D "$dir/mnt/data" -l "$dir/run/log" -w start \
  -o "-c listen_addresses= -c unix_socket_directories=$dir/run -c shared_buffers=8MB -c autovacuum=off" > /dev/null
as_postgres "$pg/createdb" -h "$dir/run" bench
as_postgres "$pg/pgbench" -h "$dir/run" -i -q -s 20 bench > "$dir/init.log" 2>&1
echo 'checkpoint;' | as_postgres "$pg/psql" -h "$dir/run" -q bench

measure 'alone'
neighbour
measure 'beside the neighbour, no control'
configure parda 30ms
measure 'parda, threshold 30 ms'
configure parda 30ms 12ms
measure 'parda, target 12 ms for the database'

echo
awk -F '\t' '
  !($1 in n) { order[++kinds] = $1 }
  { n[$1]++; sum[$1] += $3 }
  END {
    printf "%-40s %8s\n", "three clients of pgbench, TPC-B", "TPS"
    for (i = 1; i <= kinds; i++) printf "%-40s %8.1f\n", order[i], sum[order[i]] / n[order[i]]
  }' "$dir/tps.tsv"
cp "$dir/tps.tsv" "$out"
