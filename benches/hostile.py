#!/usr/bin/env python3
"""What hostile clients cost a client that is served, kind by kind (benches/attackers.py has the kinds).

512 connections of 8 processes attack. Beside them one client that is connected loads a disk; and every 50 ms another one connects, whose
time from connect to the end of its handshake is taken. Three rounds in turn: quiet, while another agent is attacked, and while this one is.
The attackers and the agent that they attack need processors too, which on a small machine are the client's: the second round has that, and
nothing else, in common with the third.

What the agent itself spends on an attack is its CPU time while nobody else asks it for anything: the least noisy of these numbers.

With --pin, the client and its agent have the first processor and the attackers, the newcomers and the other agent have the second: what the
client then loses is what the attack takes from it through its agent, and nothing else.

  benches/hostile.py target/release/parda [--kinds never-read …] [--rounds 5] [--cell randread/4k/16/1/on] [--pin]
"""
import argparse
import os
import statistics
import tempfile
import time

from attackers import KINDS, Attack, Newcomers
from pairs import SIZE, Agent, data_file, interval


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1)
    options.add_argument("--dir", default="/var/tmp")
    options.add_argument("--cell", default="randread/4k/16/1/on")
    options.add_argument("--limit", type=int, default=250, help="handshakes per second")
    options.add_argument("--mode", choices=["parda", "off"], default="parda", help="with control (a window that does not bind at first), or without")
    options.add_argument("--pin", action="store_true", help="the client and its agent on processor 0, all others on 1")
    options = options.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        data = data_file(dir)
        print("| kind | done/s | IOPS, quiet | another is attacked / quiet | attacked / another is | attacked / quiet | "
              "the agent's CPU for each IO, attacked / another is | "
              "the agent's cores, quiet | attacked | attacked without a client | a new client waits, ms: p50 | most |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
        for kind in options.kinds:
            measure(dir, data, kind, options)


def measure(dir, data, kind, options):
    operation, block, depth, connections, direct = options.cell.split("/")
    theirs = os.path.join(dir, "theirs")
    with open(theirs, "wb") as file:
        file.truncate(SIZE)
    # All may have a place, so that it is not their number which stops them.
    more = f"""[volume.limits]
handshakes_per_second = {options.limit}
connections_per_export = 1024
[[volume.disk]]
name = "theirs"
path = "{theirs}"
listen = "unix:{{socket}}"
direct = "{direct}"
lock = "off"
"""
    if options.pin:
        # Inherited by all that this process starts.
        os.sched_setaffinity(0, {1})
    agent = Agent(options.parda, dir, "agent", data, direct, more=more, pin=0 if options.pin else None)
    load = ["--op", operation, "--bs", block, "--depth", depth, "--connections", connections]
    another = Agent(options.parda, dir, "another", data, direct, more=more)
    ratios, quiet, cores, waits, served = ([], [], [], []), [], ([], []), [], []

    def round():
        before, began = agent.cpu(), time.monotonic()
        iops = agent.load(load, options.seconds, options.mode)[0]
        return iops, (agent.cpu() - before) / (time.monotonic() - began) / 1e9

    def attacked(victim):
        """A round beside an attack; what newcomers waited, and what the attackers did in a second."""
        attack = Attack(kind, victim.socket)
        # What may begin at once has begun after that.
        time.sleep(1)
        newcomers = Newcomers(victim.socket)
        done, began = attack.done(), time.monotonic()
        try:
            answer = round()
            rate = (attack.done() - done) / (time.monotonic() - began)
        finally:
            waited = newcomers.end()
            attack.end()
        time.sleep(0.5)
        return answer, waited, rate

    try:
        round()
        for _ in range(options.rounds):
            alone = round()
            beside, _, _ = attacked(another)
            under, waited, rate = attacked(agent)
            waits += waited
            served.append(rate)
            ratios[0].append(beside[0] / alone[0])
            ratios[1].append(under[0] / beside[0])
            ratios[2].append(under[0] / alone[0])
            ratios[3].append(under[1] / under[0] / (beside[1] / beside[0]))
            quiet.append(alone[0])
            cores[0].append(alone[1])
            cores[1].append(under[1])
        attack = Attack(kind, agent.socket)
        time.sleep(1)
        before, began = agent.cpu(), time.monotonic()
        time.sleep(3)
        idle = (agent.cpu() - before) / (time.monotonic() - began) / 1e9
        attack.end()
        median = statistics.median
        print(f"| {kind} | {median(served):.0f} | {median(quiet):.0f} | {interval(ratios[0])} | {interval(ratios[1])} | {interval(ratios[2])} | {interval(ratios[3])} | {median(cores[0]):.2f} | "
              f"{median(cores[1]):.2f} | {idle:.4f} | {1000 * median(waits):.1f} | {1000 * max(waits):.0f} |", flush=True)
    finally:
        agent.end()
        another.end()


if __name__ == "__main__":
    main()
