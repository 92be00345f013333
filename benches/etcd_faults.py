#!/usr/bin/env python3
"""What failures of etcd cost the IO of an agent whose exchange is there: pairs of rounds, one with the failure and one without.

A real etcd of three members, its data in memory; an agent that is under control serves a file to one client, and a second
agent is its peer in the exchange. A round with a failure begins 0.1 s before it. After each the cluster is mended, and the agents must hear each
other again before the next round begins. Rounds come in turn, A B, B A, A B …, as in pairs.py; each pair gives one ratio, and the median of the
ratios comes with its 95 % interval. The first row has no failure in either round: it shows what the machine does by itself.

A cell is as in pairs.py. The p99 of a real disk (…/on) may differ twofold from round to round; the page cache (…/off) shows what the agent itself does.

Agent and client share processor 0, the members of etcd have processor 1 (--no-pin: all have all), so that what etcd computes is not counted as
what its failure costs.

  benches/etcd_faults.py target/release/parda [--pairs 18] [--seconds 1.5] [--cell randread/4k/16/1/on]
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from pairs import Agent, data_file, interval, pinned, until

MEMBERS, PERIOD, BEFORE = 3, "250ms", 0.1
RATIOS = ["p99_us", "p50_us", "iops"]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda", help="the program")
    options.add_argument("--pairs", type=int, default=18)
    options.add_argument("--seconds", type=float, default=1.5, help="length of a round")
    options.add_argument("--dir", default="/var/tmp", help="where the file is: a real disk")
    options.add_argument("--cell", default="randread/4k/16/1/on")
    options.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    options.add_argument("--no-pin", action="store_true")
    options = options.parse_args()
    cpus = (None, None) if options.no_pin else (0, 1)
    with tempfile.TemporaryDirectory(dir=options.dir) as dir, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        data = data_file(dir)
        etcd = Etcd(memory, cpus[1])
        agents = []
        try:
            etcd.wait()
            agents = [Host(options, dir, name, data, etcd, cpu) for name, cpu in zip(("first", "second"), cpus)]
            until(lambda: all(agent.hears() for agent in agents), 30)
            print("| fault | pairs | p99 without it, ms | p99: with / without | p50: with / without | IOPS: with / without | periods that failed |")
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
            rows = {fault: measure(fault, etcd, agents, options) for fault in options.only}
            faults = [row for fault, row in rows.items() if fault != "none"]
            if len(faults) > 1:
                show("all faults", *(sum(column, type(column[0])()) for column in zip(*faults)))
        finally:
            for agent in agents:
                agent.end()
            etcd.end()


def measure(fault, etcd, agents, options):
    operation, block, depth, connections, _ = options.cell.split("/")
    load = ["--op", operation, "--bs", block, "--depth", depth, "--connections", connections]
    ratios, before, failed = [[] for _ in RATIOS], [], 0
    strike, mend = FAULTS[fault]

    def calm():
        return agents[0].answer(load, options.seconds)

    def struck():
        failures = agents[0].failures()
        blow = threading.Timer(BEFORE, strike, [etcd])
        blow.start()
        answer = agents[0].answer(load, options.seconds)
        blow.join()
        failures = agents[0].failures() - failures
        mend(etcd)
        etcd.wait()
        until(lambda: all(agent.hears() for agent in agents), 60)
        return answer, failures

    calm()
    for pair in range(options.pairs):
        if pair % 2:
            (a, failures), b = struck(), calm()
        else:
            b = calm()
            a, failures = struck()
        failed += failures
        before.append(b["p99_us"] / 1000)
        for key, of in zip(RATIOS, ratios):
            of.append(a[key] / b[key])
    if (failed == 0) != (fault == "none"):
        raise SystemExit(f"{fault}: {failed} periods without the exchange")
    row = (before, *ratios, failed)
    show(fault, *row)
    return row


def show(fault, before, p99, p50, iops, failed):
    p99, p50, iops = (interval(ratios) for ratios in (p99, p50, iops))
    print(f"| {fault} | {len(before)} | {statistics.median(before):.2f} | {p99} | {p50} | {iops} | {failed} |", flush=True)


class Host(Agent):
    """An agent that meets the other one in etcd."""

    def __init__(self, options, dir, name, data, etcd, cpu):
        urls = ", ".join(f'"{url}"' for url in etcd.urls)
        more = f'period = "{PERIOD}"\n[volume.exchange]\netcd = [{urls}]'
        self.status = os.path.join(dir, f"{name}.status")
        super().__init__(options.parda, dir, name, data, options.cell.split("/")[4], more=more, pin=cpu, host=name, status=self.status)

    def exchange(self):
        answer = subprocess.run([self.parda, "status", "--socket", self.status, "--json", "-"], check=True, capture_output=True)
        return json.loads(answer.stdout)["volumes"][0]["exchange"]

    def hears(self):
        exchange = self.exchange()
        # Before its first round an agent has none.
        return exchange and not exchange["fault"] and any(peer["liveness"] == "live" for peer in exchange["peers"])

    def failures(self):
        return self.exchange()["failures"]


class Etcd:
    """Three members at loopback addresses."""

    def __init__(self, dir, cpu):
        self.dir, self.pin = dir, pinned(cpu)
        self.hosts = [f"127.{os.getpid() % 250 + 1}.{time.time_ns() % 250 + 1}.{n + 1}" for n in range(MEMBERS)]
        self.urls = [f"http://{host}:2379" for host in self.hosts]
        self.processes = [self.launch(n) for n in range(MEMBERS)]

    def launch(self, n):
        peers = [f"http://{host}:2380" for host in self.hosts]
        line = ["etcd", "--name", f"m{n}", "--data-dir", self.data(n), "--listen-client-urls", self.urls[n], "--advertise-client-urls", self.urls[n]]
        line += ["--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n]]
        line += ["--initial-cluster", ",".join(f"m{i}={url}" for i, url in enumerate(peers)), "--logger", "zap"]
        with open(os.path.join(self.dir, f"m{n}.log"), "ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, preexec_fn=self.pin)

    def data(self, n):
        return os.path.join(self.dir, f"m{n}")

    def kill(self, n):
        self.processes[n].kill()
        self.processes[n].wait()

    def stop(self, members, sig=signal.SIGSTOP):
        for n in members:
            self.processes[n].send_signal(sig)

    def wipe(self):
        """All members are killed and begin anew, with nothing."""
        for n in range(MEMBERS):
            self.kill(n)
            shutil.rmtree(self.data(n))
        self.processes = [self.launch(n) for n in range(MEMBERS)]

    def leads(self, n):
        """Whether a member leads; None if it has no leader or does not answer."""
        try:
            with urllib.request.urlopen(f"{self.urls[n]}/v3/maintenance/status", data=b"{}", timeout=1) as answer:
                status = json.load(answer)
        except (OSError, urllib.error.URLError):
            return None
        leader = status.get("leader", "0")
        return None if leader == "0" else leader == status["header"]["member_id"]

    def leader(self):
        return next(n for n in range(MEMBERS) if self.leads(n))

    def wait(self):
        until(lambda: None not in [self.leads(n) for n in range(MEMBERS)], 60)

    def end(self):
        for n in range(MEMBERS):
            self.kill(n)


class KilledLeader:
    """The leader is killed, and started again afterwards."""

    @staticmethod
    def strike(etcd):
        KilledLeader.member = etcd.leader()
        etcd.kill(KilledLeader.member)

    @staticmethod
    def mend(etcd):
        etcd.processes[KilledLeader.member] = etcd.launch(KilledLeader.member)


def nothing(etcd):
    pass


# What happens to etcd, and how it is mended.
FAULTS = {
    "none": (nothing, nothing),
    "leader killed": (KilledLeader.strike, KilledLeader.mend),
    "two of three stopped": (lambda etcd: etcd.stop([0, 1]), lambda etcd: etcd.stop([0, 1], signal.SIGCONT)),
    "all stopped": (lambda etcd: etcd.stop(range(MEMBERS)), lambda etcd: etcd.stop(range(MEMBERS), signal.SIGCONT)),
    "all data wiped": (Etcd.wipe, nothing),
}


if __name__ == "__main__":
    main()
