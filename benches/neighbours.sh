#!/bin/bash
# What a client with large requests does to the latency of one with small requests, on one volume and in
# the page cache. Usage: benches/neighbours.sh [PARDA]
set -eu
parda=$(realpath "${1:-target/release/parda}")
dir=$(mktemp -d)
cd "$dir"
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$dir"' EXIT
head -c 256M /dev/urandom > data
cat > host.toml <<END
host = "host"
[[volume]]
name = "volume"
[[volume.disk]]
name = "disk"
path = "data"
direct = "off"
listen = "unix:nbd"
END
"$parda" serve -c host.toml 2> log &
until [ -S nbd ]; do sleep 0.1; done
bench() { "$parda-lab" bench nbd 'nbd+unix:///disk?socket=nbd' "$@"; }
bench --depth 4 --bs 16m --time 500ms > /dev/null
for depth in 1 16; do
    for round in 1 2 3; do
        echo "== 4 KiB, depth $depth, alone"
        bench --depth "$depth" --time 2s
        bench --depth 4 --bs 16m --time 4s > large &
        sleep 0.8
        echo "== 4 KiB, depth $depth, beside 4 x 16 MiB"
        bench --depth "$depth" --time 2s
        wait $!
        echo "== 4 x 16 MiB meanwhile"
        cat large
    done
done
