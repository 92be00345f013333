#!/usr/bin/env python3
"""Where an IO with O_DIRECT spends its time between the volume's thread and the disk, by the kernel's tracepoints.

Loads an agent with `parda-lab bench nbd` and has perf record what happens to each IO: io_uring takes its entry, the block layer
has the request issued to the driver, the driver completes it, io_uring is told (task work is added), and the completion is posted, which
happens when the volume's thread enters the kernel (DEFER_TASKRUN). The time between each two of these is printed. Needs root and perf.

  benches/completion_path.py target/release/parda [--depths 1 16 64] [--seconds 0.3] [--op randread]
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile

from pairs import Agent, data_file

EVENTS = ["io_uring:io_uring_submit_req", "block:block_bio_queue", "block:block_rq_issue", "block:block_rq_complete", "io_uring:io_uring_task_add", "io_uring:io_uring_complete"]
STEPS = ["entry to driver", "driver and disk", "told to posted", "entry to posted"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda")
    options.add_argument("--depths", nargs="+", default=["1", "16", "64"])
    options.add_argument("--seconds", type=float, default=0.3)
    options.add_argument("--op", default="randread")
    options.add_argument("--dir", default="/var/tmp")
    options = options.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        data = data_file(dir)
        print("| operation | depth | IOs | " + " | ".join(f"{step}, µs: mean, p50, p99" for step in STEPS) + " |")
        print("| --- | ---: | ---: |" + " ---: |" * len(STEPS), flush=True)
        agent = Agent(options.parda, dir, "agent", data, "on")
        try:
            for depth in options.depths:
                measure(dir, agent, depth, options)
        finally:
            agent.end()


def measure(dir, agent, depth, options):
    trace = os.path.join(dir, "trace")
    uri = f"nbd+unix:///disk?socket={agent.socket}"
    load = [options.parda + "-lab", "bench", "nbd", uri, "--op", options.op, "--bs", "4k", "--depth", depth, "--time", f"{options.seconds * 1000:.0f}ms"]
    if "write" in options.op:
        load.append(f"--allow-writes={uri}")
    line = ["perf", "record", "-q", "-a", "-m", "4M", "-o", trace]
    for event in EVENTS:
        line += ["-e", event]
    subprocess.run([*line, "--", *load], check=True, capture_output=True)
    text = subprocess.run(["perf", "script", "-i", trace, "-F", "tid,time,event,trace"], check=True, capture_output=True, text=True).stdout
    times = steps(text, {int(task) for task in os.listdir(f"/proc/{agent.process.pid}/task")})
    print(f"| {options.op} | {depth} | {len(times[0])} | " + " | ".join(summary(step) for step in times) + " |", flush=True)


def summary(times):
    if not times:
        return ""
    times = sorted(times)
    return ", ".join(f"{1e6 * value:.1f}" for value in (statistics.fmean(times), times[len(times) // 2], times[len(times) * 99 // 100]))


LINE = re.compile(r"\s*(\d+)\s+([\d.]+):\s+\w+:(\w+): (.*)")
REQUEST = re.compile(r"req \(?(?:0x)?([0-9a-fx]+)\)?")
SECTOR = re.compile(r"(\d+) \+ (\d+)")


def steps(text, tasks):
    """The times of each step. What a thread queues at the block layer next after taking an entry is that entry's."""
    taken, issued, of_sector, last, times = {}, {}, {}, {}, [[] for _ in STEPS]
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        task, at, event, rest = int(match[1]), float(match[2]), match[3], match[4]
        if event == "io_uring_submit_req" and task in tasks and ("READ" in rest or "WRITE" in rest):
            request = REQUEST.search(rest)[1]
            taken[request] = at
            last[task] = request
        elif event == "block_bio_queue":
            request = last.pop(task, None)
            if request:
                of_sector[SECTOR.search(rest)[1]] = request
        elif event == "block_rq_issue":
            request = of_sector.get(SECTOR.search(rest)[1])
            if request:
                issued[request] = at
        elif event == "block_rq_complete":
            sector = SECTOR.search(rest)
            request = of_sector.pop(sector[1], None) if sector else None
            if request in issued:
                issued[request] = (issued[request], at)
        elif event == "io_uring_complete":
            found = REQUEST.search(rest)
            request = found and found[1]
            began, on_disk = taken.pop(request, None), issued.pop(request, None)
            if began is None or not isinstance(on_disk, tuple):
                continue
            begun, ended = on_disk
            for times_of, span in zip(times, (begun - began, ended - begun, at - ended, at - began)):
                times_of.append(span)
    return times


if __name__ == "__main__":
    main()
