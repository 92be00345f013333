#!/usr/bin/env python3
"""What a flood of handshakes costs the clients that are served, with the limit of their rate and without.

8 processes with 64 connections each come, say a whole handshake, go, and come again, as fast as they are let in. Beside them one
client that is connected loads a disk; and every 50 ms another one connects, whose time from connect to the end of its handshake is
taken. Three rounds in turn: quiet, while another agent is flooded, and while this one is. The attackers and the agent that they
flood need processors too, which on a small machine are the client's: the second round has that, and nothing else, in common with the third.

What the agent itself spends on the flood is its CPU time while nobody else asks it for anything: the least noisy of these numbers.

With --pin, the client and its agent have the first processor and the attackers, the newcomers and the other agent have the second: what the
client then loses, flooded over quiet, is what the flood takes from it through its agent, and nothing else.

  benches/flood.py target/release/parda [--rounds 5] [--cell randread/4k/16/1/on] [--pin]
"""
import argparse
import multiprocessing
import os
import socket
import statistics
import struct
import tempfile
import threading
import time

from pairs import SIZE, Agent, interval

PROCESSES, SOCKETS = 8, 64


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1)
    options.add_argument("--dir", default="/var/tmp")
    options.add_argument("--cell", default="randread/4k/16/1/on")
    options.add_argument("--limits", nargs="+", default=["250", "65536"], help="of handshakes per second")
    options.add_argument("--pin", action="store_true", help="the client and its agent on processor 0, all others on 1")
    options = options.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        data = os.path.join(dir, "data")
        with open(data, "wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())
        print("| handshakes_per_second | handshakes/s | IOPS, quiet | another is flooded / quiet | flooded / another is | flooded / quiet | "
              "the agent's CPU for each IO, flooded / quiet | "
              "the agent's cores, quiet | flooded | flooded without a client | a new client waits, ms: p50 | most |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
        for limit in options.limits:
            measure(dir, data, limit, options)


def measure(dir, data, limit, options):
    operation, block, depth, connections, direct = options.cell.split("/")
    more = "" if limit == "none" else f"[volume.limits]\nhandshakes_per_second = {limit}"
    if options.pin:
        # Inherited by all that this process starts.
        os.sched_setaffinity(0, {1})
    agent = Agent(options.parda, dir, "agent", data, direct, more=more, pin=0 if options.pin else None)
    load = ["--op", operation, "--bs", block, "--depth", depth, "--connections", connections, "--warmup", "0s"]
    another = Agent(options.parda, dir, "another", data, direct, more=more)
    ratios, quiet, cores, waits, served = ([], [], [], []), [], ([], []), [], []

    def round():
        before, began = agent.cpu(), time.monotonic()
        iops = agent.load(load[:-2], options.seconds, "parda")[0]
        return iops, (agent.cpu() - before) / (time.monotonic() - began) / 1e9

    try:
        round()
        for _ in range(options.rounds):
            alone = round()
            flood = Flood(another.socket)
            time.sleep(1)
            newcomers = Newcomers(another.socket)
            beside = round()
            newcomers.end()
            flood.end()
            time.sleep(0.5)
            flood = Flood(agent.socket)
            # What may begin at once has begun after that.
            time.sleep(1)
            newcomers = Newcomers(agent.socket)
            done = flood.done()
            began = time.monotonic()
            flooded = round()
            served.append((flood.done() - done) / (time.monotonic() - began))
            waits += newcomers.end()
            flood.end()
            ratios[0].append(beside[0] / alone[0])
            ratios[1].append(flooded[0] / beside[0])
            ratios[2].append(flooded[0] / alone[0])
            ratios[3].append(flooded[1] / flooded[0] / (alone[1] / alone[0]))
            quiet.append(alone[0])
            cores[0].append(alone[1])
            cores[1].append(flooded[1])
            time.sleep(0.5)
        flood = Flood(agent.socket)
        time.sleep(1)
        before, began = agent.cpu(), time.monotonic()
        time.sleep(3)
        idle = (agent.cpu() - before) / (time.monotonic() - began) / 1e9
        flood.end()
        median = statistics.median
        print(f"| {limit} | {median(served):.0f} | {median(quiet):.0f} | {interval(ratios[0])} | {interval(ratios[1])} | {interval(ratios[2])} | {interval(ratios[3])} | {median(cores[0]):.2f} | "
              f"{median(cores[1]):.2f} | {idle:.4f} | {1000 * median(waits):.1f} | {1000 * max(waits):.0f} |", flush=True)
    finally:
        agent.end()
        another.end()


# Client flags, and EXPORT_NAME.
HELLO = struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 4) + b"disk"


class Flood:
    def __init__(self, path):
        self.counts = [multiprocessing.Value("q", 0) for _ in range(PROCESSES)]
        self.processes = [multiprocessing.Process(target=flood, args=(path, count), daemon=True) for count in self.counts]
        [process.start() for process in self.processes]

    def done(self):
        return sum(count.value for count in self.counts)

    def end(self):
        for process in self.processes:
            process.kill()
            process.join()


def flood(path, count):
    """Goes on for ever: whoever is let in (it is greeted) ends its handshake, goes and comes again."""
    sockets = []
    while True:
        while len(sockets) < SOCKETS:
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5)
            try:
                one.connect(path)
                one.send(HELLO)
                sockets.append(one)
            except OSError:
                # Turned away.
                one.close()
        one = sockets.pop(0)
        try:
            # The greeting, and the answer.
            if one.recv(64):
                count.value += 1
        except OSError:
            pass
        one.close()


class Newcomers:
    """A process of its own for each, so that each is a peer of its own."""

    def __init__(self, path):
        self.over, self.waits = threading.Event(), []
        self.thread = threading.Thread(target=self.run, args=(path,))
        self.thread.start()

    def run(self, path):
        while not self.over.wait(0.05):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                began = time.monotonic()
                one = socket.socket(socket.AF_UNIX)
                one.settimeout(30)
                one.connect(path)
                one.send(HELLO)
                got = b""
                # 18 bytes of greeting; size and flags.
                while len(got) < 28:
                    part = one.recv(64)
                    if not part:
                        os._exit(1)
                    got += part
                os.write(write, struct.pack("d", time.monotonic() - began))
                os._exit(0)
            os.close(write)
            waited = os.read(read, 8)
            os.close(read)
            os.waitpid(child, 0)
            self.waits.append(struct.unpack("d", waited)[0] if waited else 30.0)

    def end(self):
        self.over.set()
        self.thread.join()
        return self.waits


if __name__ == "__main__":
    main()
