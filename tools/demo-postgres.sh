#!/usr/bin/env bash
# PostgreSQL beside a noisy neighbour on one emulated array, alone, without control and with it. Its data directory is on a disk that parda serves.
# usage: tools/demo-postgres.sh PARDA OUT.tsv [SECONDS]
# Needs root, as it mounts a file system. OUT.tsv has the transactions of each second. Exit status: 0 if control helped the database, 1 if not or if
# anything failed, 130 if it was interrupted.
#
# All of it lives in namespaces of its own for processes and mounts: when it ends, however it ends, nothing is left (but an empty directory, if this
# script itself was killed).
set -euo pipefail

fail() {
  echo "demo-postgres: $*" >&2
  exit 1
}

[ $# -ge 2 ] || fail 'usage: tools/demo-postgres.sh PARDA OUT.tsv [SECONDS]'
parda=$(readlink -f "$1")
out=$(readlink -f "$2") || fail "$2: its directory is not there"
seconds=${3:-45}

# The newest PostgreSQL with a server.
pg=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)

lacks() {
  local program
  [[ $seconds =~ ^[1-9][0-9]{0,3}$ ]] || echo "SECONDS is $seconds: a whole number from 1 to 9999"
  [ -x "$parda" ] || echo "no program $parda: run make build"
  [ "$(id -u)" -eq 0 ] || echo 'not root: mounting a file system needs it'
  [ -x "$pg/initdb" ] || echo 'no PostgreSQL server below /usr/lib/postgresql: install postgresql'
  id postgres > /dev/null 2>&1 || echo 'no user postgres: install postgresql'
  for program in pgbench=postgresql nbdfuse=libnbd-bin nbdinfo=libnbd-bin fio=fio mkfs.ext4=e2fsprogs unshare=util-linux setpriv=util-linux; do
    command -v "${program%=*}" > /dev/null || echo "no ${program%=*}: install ${program#*=}"
  done
  [ -c /dev/fuse ] || echo 'no /dev/fuse: load the module fuse; a container needs --device /dev/fuse'
  [ -c /dev/loop-control ] || echo 'no /dev/loop-control: load the module loop; a container needs it as a device, and the devices /dev/loop*'
}

if [ -z "${PARDA_DEMO_DIR:-}" ]; then
  lacking=$(lacks)
  [ -z "$lacking" ] || fail "cannot run here:"$'\n'"$lacking"
  PARDA_DEMO_DIR=$(mktemp -d -t parda-postgres.XXXXXX)
  export PARDA_DEMO_DIR
  trap 'rmdir "$PARDA_DEMO_DIR"' EXIT
  trap 'kill -KILL $inside; wait $inside 2> /dev/null || exit 130' INT TERM
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc -- "$0" "$@" &
  inside=$!
  wait $inside || exit 1
  exit 0
fi

dir=$PARDA_DEMO_DIR
mount -t tmpfs -o mode=0755 none "$dir"

names=() pids=()
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }

start() { # NAME COMMAND ...
  local log=$dir/$1.log
  names+=("$1")
  shift
  "$@" > "$log" 2>&1 &
  pids+=($!)
}

# Ends with the last lines of all logs.
give_up() {
  echo "demo-postgres: $*; the last lines of the logs:" >&2
  tail -n 3 "$dir"/*.log "$dir/run/log" >&2 2> /dev/null
  exit 1
}

# Ends if a part has ended.
all_run() {
  local i
  for i in "${!pids[@]}"; do
    kill -0 "${pids[i]}" 2> /dev/null || give_up "${names[i]} ended while it was needed"
  done
}

until_true() { # WHAT COMMAND ...
  local what=$1 i
  shift
  for ((i = 0; i < 300; i++)); do
    "$@" > /dev/null 2>&1 && return
    all_run
    sleep 0.1
  done
  give_up "waited 30 s in vain for $what"
}

# Runs a command, and ends if it fails or a part ends meanwhile.
do_it() { # NAME COMMAND ...
  local name=$1 command
  shift
  "$@" < /dev/null > "$dir/$name.log" 2>&1 &
  command=$!
  while kill -0 $command 2> /dev/null; do
    wait -n $command "${pids[@]}" || true
    all_run
  done
  wait $command || give_up "$name failed"
}

uri() { echo "nbd+unix:///$1?socket=$dir/$2.sock"; }

# Both agents. MODE and THRESHOLD are of the volume; the batch job may have a reservation.
configure() { # MODE THRESHOLD [RESERVATION]
  local host agent
  for host in database batch; do
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
offset = "$([ $host = database ] && echo 0 || echo 100)GiB"
size = "$([ $host = database ] && echo 8 || echo 100)GiB"
listen = "unix:$dir/$host.sock"
shares = 1000
END
  done
  [ -z "${3:-}" ] || echo "reservation = $3" >> "$dir/batch.toml"
  for agent in "${agents[@]:-}"; do [ -z "$agent" ] || kill -HUP "$agent"; done
}

# Reads of the neighbour since its agent started.
batch_reads() {
  "$parda" status --json - --socket "$dir/batch.status" | tr -d ' \n' | grep -o '"reads":{"ios":[0-9]*' | grep -o '[0-9]*$'
}

# Transactions of three clients, each second. The first ten seconds are the law's to settle.
measure() { # NAME
  local before after counts
  echo "$1: $((seconds + 10)) s ..." >&2
  # What the measurement before has left to be written would be part of this one: in the kernel, and in the caches of the drives.
  [ -z "${neighbour:-}" ] || kill -STOP "$neighbour"
  do_it checkpoint as_postgres "$pg/psql" -h "$dir/run" -q -c checkpoint bench
  do_it sync sync -f "$dir/mnt"
  do_it drain sleep 15
  [ -z "${neighbour:-}" ] || kill -CONT "$neighbour"
  { sleep 10 && batch_reads > "$dir/before"; } &
  counts=$!
  do_it pgbench as_postgres "$pg/pgbench" -h "$dir/run" -n -c 3 -j 1 -T "$((seconds + 10))" -P 1 bench
  after=$(batch_reads)
  wait $counts || give_up 'the reads of the neighbour cannot be counted'
  before=$(cat "$dir/before")
  awk -v name="$1" '/^progress:/ && $2 > 10 { print name "\t" $2 - 10 "\t" $4 }' "$dir/pgbench.log" >> "$dir/tps.tsv"
  printf '%s\t%s\n' "$1" "$(((after - before) / seconds))" >> "$dir/batch.tsv"
}

echo "PostgreSQL beside a noisy neighbour: about $(((4 * (seconds + 30) + 59) / 60 + 1)) minutes" >&2
agents=()
start array "$parda-lab" array --preset drive-7200 --drives 4 --raid raid0 --listen "unix:$dir/array.sock"
until_true 'the array' nbdinfo --size "$(uri lun0 array)"
"$parda" exchange init "$(uri exchange array)" --volume array > /dev/null
configure off 30ms
for host in database batch; do
  start "agent-$host" "$parda" serve -c "$dir/$host.toml"
  agents+=($!)
  until_true "the agent of $host" nbdinfo --size "$(uri $host $host)"
done

: > "$dir/disk"
start nbdfuse nbdfuse -C 1 "$dir/disk" "$(uri database database)"
until_true 'the disk as a file' test -s "$dir/disk"
# All is written now: what ext4 leaves for later would load the array while it is measured.
do_it mkfs mkfs.ext4 -q -N 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$dir/disk"
mkdir "$dir/mnt" "$dir/run"
mount -o loop "$dir/disk" "$dir/mnt" || give_up 'cannot mount the disk'
chown postgres: "$dir/mnt" "$dir/run"
rmdir "$dir/mnt/lost+found"
echo 'makes a database ...' >&2
do_it initdb as_postgres "$pg/initdb" -D "$dir/mnt/data" --no-sync
do_it pg_ctl as_postgres "$pg/pg_ctl" -D "$dir/mnt/data" -l "$dir/run/log" -w start \
  -o "-c listen_addresses= -c unix_socket_directories=$dir/run -c shared_buffers=8MB -c autovacuum=off"
do_it createdb as_postgres "$pg/createdb" -h "$dir/run" bench
do_it load as_postgres "$pg/pgbench" -h "$dir/run" -i -q -s 20 bench

without='beside the neighbour, no control'
measure 'alone'
start neighbour fio --name=batch --ioengine=nbd --uri="$(uri batch batch)" --thread --rw=randread --bs=8k --iodepth=64 --time_based --runtime=36000
# With --thread that is the process that reads, and stops.
neighbour=${pids[-1]}
measure "$without"
configure parda 30ms
measure 'parda, threshold 30 ms'
# At a threshold that only the database's cached writes meet, the batch job has its reservation, and the database the rest.
keeps=$(awk -F '\t' -v without="$without" '$1 == without { print int(0.4 * $2) + 1 }' "$dir/batch.tsv")
configure parda 3ms "$keeps"
measure "parda, 3 ms, $keeps IO/s for the job"

cp "$dir/tps.tsv" "$out"
# Without these the kernel's log would tell of IO errors.
do_it stop as_postgres "$pg/pg_ctl" -D "$dir/mnt/data" -m fast stop
# A server that has stopped may hold its last files for a moment.
until_true 'the file system to be free' umount "$dir/mnt"
kill "${pids[-1]}"
echo
awk -F '\t' -v without="$without" '
  FILENAME ~ /batch/ { reads[$1] = $2; next }
  !($1 in n) { order[++kinds] = $1 }
  { n[$1]++; sum[$1] += $3 }
  END {
    for (kind in n) tps[kind] = sum[kind] / n[kind]
    alone = tps["alone"]; noisy = tps[without]; some = tps[order[3]]; most = tps[order[4]]
    printf "%-40s %8s %10s %12s\n", "three clients of pgbench, TPC-B", "TPS", "of alone", "batch IOPS"
    for (i = 1; i <= kinds; i++)
      printf "%-40s %8.1f %9.0f%% %12d\n", order[i], tps[order[i]], 100 * tps[order[i]] / alone, reads[order[i]]
    printf "\nAlone, PostgreSQL commits %.0f transactions a second. Beside a batch job that keeps 64 reads waiting on another host, it keeps %.0f %% of that.\n", \
      alone, 100 * noisy / alone
    printf "With equal shares and a threshold of 30 ms it keeps %.0f %%, and the job %.0f %% of its reads without control.\n", \
      100 * some / alone, 100 * reads[order[3]] / reads[without]
    printf "With a threshold of 3 ms and a reservation for the job it keeps %.0f %%, and the job %.0f %%.\n", \
      100 * most / alone, 100 * reads[order[4]] / reads[without]
    if (noisy > 0.7 * alone) { print "The neighbour did not slow the database: this run shows nothing of control." > "/dev/stderr"; exit 1 }
    if (most < 1.3 * noisy) { print "Control did not help the database: 1.3 times as many is the least that this run accepts." > "/dev/stderr"; exit 1 }
    if (reads[order[4]] < 0.35 * reads[without]) { print "The reservation did not help the job: 35 % of its reads is the least that this run accepts." > "/dev/stderr"; exit 1 }
  }' "$dir/batch.tsv" "$dir/tps.tsv"
