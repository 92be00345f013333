#!/usr/bin/env python3
"""What an agent takes by itself: CPU of all its threads, and memory, without IO and at 10,000 IOPS.

Two agents under control meet in an exchange, once a second: a file, or each other's datagrams. fio (its nbd engine) keeps a fixed rate of random reads of
4 KiB from the page cache at one of them; the other one is idle. CPU is by schedstat, memory by smaps_rollup: PSS, its own share of what
is shared, and RSS. The rate that fio reached is shown as well.

  benches/own_cost.py target/release/parda [--seconds 20] [--rates 0 1000 10000]
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

from pairs import Agent, data_file, until

TRANSPORTS = {
    "file": lambda dir, me, peer: f'[volume.exchange]\nfile = "{dir}/exchange"',
    "udp": lambda dir, me, peer: f'[volume.exchange]\nudp = "127.0.0.{me}:7977"\npeers = ["127.0.0.{peer}:7977"]\nkey_file = "{dir}/key"',
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda", help="the program")
    options.add_argument("--seconds", type=float, default=20, help="length of a measurement")
    options.add_argument("--rates", type=int, nargs="+", default=[0, 1000, 10000], help="reads per second")
    options.add_argument("--dir", default="/var/tmp", help="where the file is")
    options = options.parse_args()
    print("| exchange | IOPS asked for | IOPS | CPU, of a processor | CPU for each IO, µs | PSS, MiB | RSS, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for transport, keys in TRANSPORTS.items():
        with tempfile.TemporaryDirectory(dir=options.dir) as dir:
            measure(options, transport, keys, dir)


def measure(options, transport, keys, dir):
    data = data_file(dir)
    key = os.open(f"{dir}/key", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(key, os.urandom(32).hex().encode())
    os.close(key)
    subprocess.run([options.parda, "exchange", "init", f"{dir}/exchange", "--volume", "bench"], check=True, capture_output=True)
    agents = []
    try:
        for number, name in enumerate(("first", "second"), start=1):
            status = os.path.join(dir, f"{name}.status")
            agents.append(Agent(options.parda, dir, name, data, "off", more=keys(dir, number, 3 - number), host=name, status=status))
        until(lambda: all(hears(options.parda, os.path.join(dir, f"{name}.status")) for name in ("first", "second")), 30)
        for rate in options.rates:
            row(options, transport, agents[0], rate)
    finally:
        for agent in agents:
            agent.end()


def hears(parda, status):
    answer = subprocess.run([parda, "status", "--socket", status, "--json", "-"], check=True, capture_output=True)
    exchange = json.loads(answer.stdout)["volumes"][0]["exchange"]
    return exchange and any(peer["liveness"] == "live" for peer in exchange["peers"])


def row(options, transport, agent, rate):
    client = None
    if rate:
        uri = f"nbd+unix:///disk?socket={agent.socket}"
        line = ["fio", "--name=load", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k", "--iodepth=16", "--thread", "--time_based"]
        line += [f"--rate_iops={rate}", f"--runtime={options.seconds + 3:.0f}s", "--output-format=json"]
        client = subprocess.Popen(line, stdout=subprocess.PIPE)
        # What it takes to begin is no part of it.
        time.sleep(1)
    began, cpu = time.monotonic(), agent.cpu()
    time.sleep(options.seconds)
    took, cpu = time.monotonic() - began, agent.cpu() - cpu
    pss, rss = memory(agent.process.pid)
    said = client.communicate()[0].decode() if client else ""
    # Notes come before the JSON.
    iops = json.loads(said[said.index("{") :])["jobs"][0]["read"]["iops"] if client else 0
    part = cpu / 1e9 / took
    each = f"{part * 1e6 / iops:.1f}" if iops else ""
    print(f"| {transport} | {rate} | {iops:.0f} | {part * 100:.2f} % | {each} | {pss:.1f} | {rss:.1f} |", flush=True)


def memory(pid):
    lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/smaps_rollup").read().splitlines()[1:])
    return [int(lines[key].split()[0]) / 1024 for key in ("Pss", "Rss")]


if __name__ == "__main__":
    main()
