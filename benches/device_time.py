#!/usr/bin/env python3
"""Device latency as the law has it, beside the kernel's own for the same IOs.

Serves a file with O_DIRECT and a window that never binds, loads it with `parda-lab bench nbd`, and compares the mean of the
agent's histogram of device latencies (`parda status --json - --histograms`) with what /proc/diskstats counts for the disk, per IO. What
the volume's thread spent waiting for a processor is taken from its schedstat. The machine should do nothing else.

  benches/device_time.py target/release/parda [DIR, default /var/tmp]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from pairs import data_file

SECONDS, ROUNDS = 1, int(os.environ.get("ROUNDS", 5))


def main():
    parda = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else "/var/tmp") as dir:
        data = data_file(dir)
        disk = name_of(os.stat(data).st_dev)
        print("| operation | depth | IOPS | law, µs | kernel, µs | law - kernel, µs | of it waiting for a processor, µs |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for op in ("randread", "randwrite"):
            for depth in (1, 16, 64):
                rows = [measure(parda, dir, data, disk, op, depth) for _ in range(ROUNDS)]
                iops, law, kernel, waited = (statistics.median(column) for column in zip(*rows))
                print(f"| {op} | {depth} | {iops:.0f} | {law:.0f} | {kernel:.0f} | {law - kernel:.0f} | {waited:.1f} |")


def name_of(device):
    """The disk that a device number belongs to, as diskstats has it."""
    return os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))


def measure(parda, dir, data, disk, op, depth):
    socket, status = os.path.join(dir, "nbd.sock"), os.path.join(dir, "status.sock")
    config = os.path.join(dir, "parda.toml")
    with open(config, "w") as file:
        file.write(f"""host = "bench"
status = "unix:{status}"
[[volume]]
name = "bench"
[volume.control]
mode = "parda"
latency_threshold = "30ms"
window_start = 1024
window_max = 1024
[[volume.disk]]
name = "disk"
path = "{data}"
listen = "unix:{socket}"
direct = "on"
""")
    server = subprocess.Popen([parda, "serve", "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not os.path.exists(status):
            time.sleep(0.01)
        uri = f"nbd+unix:///disk?socket={socket}"
        allow = [f"--allow-writes={uri}"] if "write" in op else []
        answer = os.path.join(dir, "answer.json")
        before, waited = diskstats(disk, op), run_delay(server.pid)
        subprocess.run([parda + "-lab", "bench", "nbd", uri, "--op", op, "--depth", str(depth), "--warmup", "0s",
                        "--time", f"{SECONDS}s", "--json", answer, *allow], check=True, stdout=subprocess.DEVNULL)
        after, waited_after = diskstats(disk, op), run_delay(server.pid)
        said = subprocess.run([parda, "status", "--socket", status, "--json", "-", "--histograms"], check=True, stdout=subprocess.PIPE).stdout
        buckets = json.loads(said)["volumes"][0]["disks"][0]["device"]["buckets"]
        ios = sum(count for _, count in buckets)
        law = sum(ns * count for ns, count in buckets) / ios / 1000
        kernel = (after[1] - before[1]) * 1000 / (after[0] - before[0])
        return ios / SECONDS, law, kernel, (waited_after - waited) / ios / 1000
    finally:
        server.terminate()
        server.wait()


def diskstats(disk, op):
    """Completed reads or writes, and the milliseconds that they took."""
    with open("/proc/diskstats") as file:
        fields = next(line.split() for line in file if line.split()[2] == disk)
    return (int(fields[3]), int(fields[6])) if "read" in op else (int(fields[7]), int(fields[10]))


def run_delay(pid):
    """Nanoseconds that the volume's thread was ready to run and did not."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as file:
            if file.read().strip() == "parda-bench":
                with open(f"/proc/{pid}/task/{task}/schedstat") as stat:
                    return int(stat.read().split()[1])
    raise SystemExit("the volume's thread is not there")


main()
