#!/usr/bin/env python3
"""What a difference of a few per cent is: two agents or settings in turn, in pairs of short rounds.

A round of the one and a round of the other make a pair, A B, B A, A B …, so that neither a drift of the machine nor the order decides.
Each pair gives one ratio; the median of the ratios comes with its 95 % interval (order statistics). Both serve the same file to the
same client, with a window that never binds: what is measured is what the code costs, and not what control holds back. CPU is that of
all threads of the agent, by their schedstat.

  benches/pairs.py target/release/parda control             control on, over off: one agent that reloads
  benches/pairs.py target/release/parda idle-disks          1,000 idle disks beside the busy one, over none
  benches/pairs.py target/release/parda scrapes --seconds 1 a scrape of /metrics in each round beside 1,000 idle disks, over none
  benches/pairs.py target/release/parda build OTHER         this build, over the other one
  benches/pairs.py target/release/parda lever NAME          the bare ring with a lever (benches/bare), over without

With --pin, server and client share one processor: neither is placed or woken otherwise from round to round, which is most of what two
rounds differ by. IOPS are then one over the CPU time of both.

A cell is OPERATION/BLOCK/DEPTH/CONNECTIONS/DIRECT. The machine should do nothing else.
"""
import argparse
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

SIZE, IDLE_DISKS = 256 << 20, 1000


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda", help="the program")
    options.add_argument("what", choices=["control", "idle-disks", "scrapes", "build", "lever"])
    options.add_argument("other", nargs="?", help="the program to compare with, or the lever, such as fixed-files")
    options.add_argument("--pairs", type=int, default=60)
    options.add_argument("--seconds", type=float, default=0.15, help="length of a round")
    options.add_argument("--dir", default="/var/tmp", help="where the file is: a real disk")
    options.add_argument("--cells", nargs="+", default=["randread/4k/16/1/off", "randread/4k/64/1/off"])
    options.add_argument("--pin", type=int, metavar="CPU", help="the processor for server and client")
    options.add_argument("--bare", default="target/release/examples/bare", help="the bare ring")
    options.add_argument("--tcp", action="store_true", help="lever: over TCP on loopback")
    options = options.parse_args()
    if (options.what in ("build", "lever")) != (options.other is not None):
        raise SystemExit("build needs another program and lever its name, and nothing else does")
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        data = data_file(dir)
        print("| cell | pairs | IOPS of the second | IOPS: first / second | CPU per IO: first / second |")
        print("| --- | ---: | ---: | ---: | ---: |", flush=True)
        for cell in options.cells:
            measure(dir, data, cell, options)


def data_file(dir):
    """A disk's data of SIZE bytes, on the medium."""
    data = os.path.join(dir, "data")
    with open(data, "wb") as file:
        # The client writes only to what begins and ends with an empty MiB.
        file.write(bytes(1 << 20) + os.urandom(SIZE - (2 << 20)) + bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return data


def measure(dir, data, cell, options):
    operation, block, depth, connections, direct = cell.split("/")
    agents = start(dir, data, cell, options)
    load = ["--op", operation, "--bs", block, "--depth", depth, "--connections", connections]
    first = lambda: agents[0].load(load, options.seconds, "parda", options.what == "scrapes")
    second = lambda: agents[-1].load(load, options.seconds, "off" if options.what == "control" else "parda")
    try:
        first(), second()
        iops, cpu, others = [], [], []
        for pair in range(options.pairs):
            if pair % 2:
                a, b = first(), second()
            else:
                b, a = second(), first()
            iops.append(a[0] / b[0])
            cpu.append(a[1] / b[1])
            others.append(b[0])
        print(f"| {cell} | {len(iops)} | {statistics.median(others):.0f} | {interval(iops)} | {interval(cpu)} |", flush=True)
    finally:
        for agent in agents:
            agent.end()


def start(dir, data, cell, options):
    direct = cell.split("/")[4]
    if options.what == "lever":
        return [Bare(options, dir, name, data, cell, more) for name, more in (("with", [f"--{options.other}"]), ("without", []))]
    if options.what == "control":
        return [Agent(options.parda, dir, "both", data, direct, pin=options.pin)]
    if options.what == "scrapes":
        return [Agent(options.parda, dir, "both", data, direct, IDLE_DISKS, pin=options.pin, http=True)]
    idle = IDLE_DISKS if options.what == "idle-disks" else 0
    other = options.other or options.parda
    return [
        Agent(options.parda, dir, "first", data, direct, idle, pin=options.pin),
        Agent(other, dir, "second", data, direct, pin=options.pin),
    ]


def interval(ratios):
    """The median and its 95 % interval: ranks n/2 ± 0.98 √n."""
    ratios, n = sorted(ratios), len(ratios)
    low, high = (ratios[min(max(round(n / 2 + sign * 0.98 * math.sqrt(n)), 0), n - 1)] for sign in (-1, 1))
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


class Agent:
    def __init__(self, parda, dir, name, data, direct, idle=0, more="", pin=None, host="bench", status=None, http=False):
        self.parda, self.data, self.direct, self.idle, self.dir = os.path.abspath(parda), data, direct, idle, dir
        self.head = f'host = "{host}"\n' + (f'status = "unix:{status}"\n' if status else "")
        self.config, self.socket, self.log = (os.path.join(dir, f"{name}.{kind}") for kind in ("toml", "sock", "log"))
        for disk in range(idle):
            with open(os.path.join(dir, f"idle{disk}"), "wb") as file:
                file.truncate(1 << 20)
        self.http = os.path.join(dir, f"{name}.http")
        self.head += f'http = {{ address = "unix:{self.http}" }}\n' if http else ""
        self.mode, self.more, self.pin = "parda", more, pinned(pin)
        self.write()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([self.parda, "serve", "-c", self.config], stderr=log, stdout=subprocess.DEVNULL, preexec_fn=self.pin)
        until(lambda: self.said("started host") > 0)

    def write(self):
        text = f"""{self.head}[[volume]]
name = "bench"
[volume.control]
mode = "{self.mode}"
latency_threshold = "30ms"
window_start = 1024
window_max = 1024
{self.more.replace("{socket}", self.socket)}
"""
        disks = [("disk", self.data)] + [(f"idle{n}", os.path.join(self.dir, f"idle{n}")) for n in range(self.idle)]
        for name, path in disks:
            # The other agent has the file as well.
            text += f"""[[volume.disk]]
name = "{name}"
path = "{path}"
listen = "unix:{self.socket}"
direct = "{self.direct}"
lock = "off"
"""
        with open(self.config, "w") as file:
            file.write(text)

    def set_mode(self, mode):
        if mode == self.mode:
            return
        self.mode = mode
        self.write()
        done = self.said("in force")
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.said("in force") > done)

    def said(self, what):
        with open(self.log) as log:
            return log.read().count(what)

    def scrape(self):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.http)
            accept = b"Accept: application/openmetrics-text;version=1.0.0\r\n"
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + accept + b"Connection: close\r\n\r\n")
            size = 0
            while part := stream.recv(1 << 20):
                size += len(part)
        assert size > 1 << 20, "an answer with all disks"

    def load(self, load, seconds, mode, scrapes=False):
        """IOPS, and CPU for each IO, up to a factor that is the same for all."""
        self.set_mode(mode)
        before = self.cpu()
        scrape = threading.Thread(target=self.scrape)
        if scrapes:
            scrape.start()
        answer = self.answer(load, seconds)
        if scrapes:
            scrape.join()
        return answer["iops"], (self.cpu() - before) / answer["iops"]

    def answer(self, load, seconds):
        """What a client measures."""
        uri = f"nbd+unix:///disk?socket={self.socket}"
        line = [self.parda + "-lab", "bench", "nbd", uri, *load, "--time", f"{seconds * 1000:.0f}ms", "--warmup", "20ms", "--json", "-"]
        if "write" in load[1]:
            line.append(f"--allow-writes={uri}")
        return json.loads(subprocess.run(line, check=True, capture_output=True, preexec_fn=self.pin).stdout)

    def cpu(self):
        tasks = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        if os.path.exists(self.socket):
            os.remove(self.socket)


class Bare:
    """The bare ring, which takes as many connections as it was told and none to see whether it is there."""

    def __init__(self, options, dir, name, data, cell, more):
        operation, block, depth, connections, direct = cell.split("/")
        self.parda, self.socket = options.parda, os.path.join(dir, f"{name}.sock")
        listen, self.uri = f"unix:{self.socket}", f"nbd+unix:///disk?socket={self.socket}"
        if options.tcp:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            listen, self.uri = f"tcp:127.0.0.1:{port}", f"nbd://127.0.0.1:{port}/disk"
        size = {"k": 1 << 10, "m": 1 << 20}[block[-1]] * int(block[:-1])
        line = [options.bare, listen, data, "--connections", connections, "--depth", depth, "--block", str(size), *more]
        line += ["--direct"] if direct == "on" else []
        self.pin = pinned(options.pin)
        self.process = subprocess.Popen(line, stderr=subprocess.PIPE, preexec_fn=self.pin)
        if options.tcp:
            self.process.stderr.readline()
        else:
            until(lambda: os.path.exists(self.socket))

    def load(self, load, seconds, mode, scrapes=False):
        line = [self.parda + "-lab", "bench", "nbd", self.uri, *load, "--time", f"{seconds * 1000:.0f}ms", "--warmup", "20ms", "--json", "-"]
        if "write" in load[1]:
            line.append(f"--allow-writes={self.uri}")
        before = Agent.cpu(self)
        answer = json.loads(subprocess.run(line, check=True, capture_output=True, preexec_fn=self.pin).stdout)
        return answer["iops"], (Agent.cpu(self) - before) / answer["iops"]

    def end(self):
        self.process.kill()
        self.process.wait()
        if os.path.exists(self.socket):
            os.remove(self.socket)


def pinned(cpu):
    """What a child does first, to run on that processor alone."""
    return None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})


def until(true_now, seconds=20):
    by = time.monotonic() + seconds
    while not true_now():
        if time.monotonic() > by:
            raise TimeoutError
        time.sleep(0.001)


if __name__ == "__main__":
    main()
