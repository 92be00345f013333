#!/usr/bin/env python3
"""Guests: parda by vhost-user, qemu-storage-daemon's vhost-user-blk export and parda by NBD, in turn, on one file.

Each round runs all three, in an order that changes from round to round; a number is the median over the rounds, and a ratio the median
of the ratios within rounds. The clients are `parda-lab bench vhost-user` and `parda-lab bench nbd`. All servers are read-only, so that they can
have the file at a time, and parda's window never binds. CPU is that of all threads of the server.

  benches/guests.py target/release/parda
  benches/guests.py target/release/parda --cells 16/off --rounds 9
  benches/guests.py target/release/parda --guests 32 --cells 64/on

With --guests, so many guests, each with the depth at a disk of its own, are compared with one guest of the same volume.

A cell is DEPTH/DIRECT. The machine should do nothing else. In a virtual machine, an idle processor polls before it halts, by Linux's
default for 200 us. Where it halts at once, each wake-up of the client is an exit to the hypervisor, which takes the server more time than
the IOs, so the first line says which it is (/sys/module/haltpoll/parameters/guest_halt_poll_ns).
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

SIZE = 256 << 20


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parda", help="the program")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--seconds", type=float, default=1.0, help="length of a run")
    options.add_argument("--dir", default="/var/tmp", help="where the file is: a real disk")
    options.add_argument("--aio", default="io_uring", help="aio of qemu-storage-daemon")
    options.add_argument("--cells", nargs="+", default=["1/off", "16/off", "64/off", "1/on", "16/on", "64/on"])
    options.add_argument("--guests", type=int, help="compare so many guests of a volume with one")
    options = options.parse_args()
    polls = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"
    if os.path.exists(polls):
        print(f"idle processors poll for {int(open(polls).read()) // 1000} us before they halt\n")
    with tempfile.TemporaryDirectory(dir=options.dir) as dir:
        data = os.path.join(dir, "data")
        with open(data, "wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())
        if options.guests:
            print("| depth/direct | IOPS of one guest | IOPS of all | ratio | CPU per IO, ratio |")
            print("| --- | ---: | ---: | ---: | ---: |", flush=True)
        else:
            print("| depth/direct | server | IOPS | µs CPU per IO | p50 µs | p99 µs | IOPS: vhost over it | CPU: vhost over it |")
            print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
        for cell in options.cells:
            (compare if options.guests else measure)(dir, data, cell, options)


def compare(dir, data, cell, options):
    depth, direct = cell.split("/")
    server = Guest(options, dir, data, direct, disks=options.guests)
    try:
        rounds = []
        for number in range(options.rounds + 1):
            answers = {}
            for guests in sorted((1, options.guests), reverse=number % 2 == 1):
                begun, cpu = time.time(), server.cpu()
                loads = [server.begin(disk, int(depth)) for disk in range(guests)]
                iops = sum(json.loads(load.communicate()[0])["iops"] for load in loads)
                answers[guests] = iops, (server.cpu() - cpu) / (time.time() - begun) / iops
            rounds += [answers] if number else []
        one, all = ([answers[guests] for answers in rounds] for guests in (1, options.guests))
        ratio = lambda of: statistics.median(b[of] / a[of] for a, b in zip(one, all))
        middle = lambda answers: statistics.median(answer[0] for answer in answers)
        print(f"| {cell} | {middle(one):.0f} | {middle(all):.0f} | {ratio(0):.2f} | {ratio(1):.2f} |", flush=True)
    finally:
        server.end()


def measure(dir, data, cell, options):
    depth, direct = cell.split("/")
    servers = [Guest(options, dir, data, direct), Daemon(options, dir, data, direct), Nbd(options, dir, data, direct)]
    try:
        if direct == "off":
            with open(data, "rb") as file:
                while file.read(1 << 20):
                    pass
        rounds = []
        for number in range(options.rounds + 1):
            turn = number % len(servers)
            answers = {server.name: server.load(depth) for server in servers[turn:] + servers[:turn]}
            # The first one warms up.
            rounds += [answers] if number else []
        middle = lambda name, key: statistics.median(answers[name][key] for answers in rounds)
        ratio = lambda name, key: statistics.median(a["vhost"][key] / a[name][key] for a in rounds)
        for server in servers:
            name = server.name
            print(
                f"| {cell} | {name} | {middle(name, 'iops'):.0f} | {middle(name, 'server_cpu_us_per_io'):.2f} |"
                f" {middle(name, 'p50_us'):.1f} | {middle(name, 'p99_us'):.1f} | {ratio(name, 'iops'):.2f} |"
                f" {ratio(name, 'server_cpu_us_per_io'):.2f} |",
                flush=True,
            )
    finally:
        for server in servers:
            server.end()


class Server:
    def start(self, command, socket):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + 20
        while not os.path.exists(socket):
            if time.time() > end or self.process.poll() is not None:
                raise SystemExit(f"{self.name} does not come up: {' '.join(command)}")
            time.sleep(0.02)

    def run(self, kind, target, depth):
        command = [self.options.parda + "-lab", "bench", kind, target, "--depth", depth, "--time", f"{self.options.seconds}s", "--warmup", "200ms"]
        command += ["--server-pid", str(self.process.pid), "--json", "-"]
        for attempt in range(50):
            # The front end of the run before may not be gone yet.
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                return json.loads(done.stdout)
            time.sleep(0.05)
        raise SystemExit(f"{self.name}: {done.stderr}")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def begin(self, disk, depth):
        command = [self.options.parda + "-lab", "bench", "vhost-user", f"{self.socket}{disk}", "--depth", str(depth), "--json", "-"]
        command += ["--time", f"{self.options.seconds}s", "--warmup", "500ms", "--seed", str(disk + 1)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))

    def agent(self, dir, data, direct, listen, disks=1):
        config = os.path.join(dir, self.name + ".toml")
        with open(config, "w") as file:
            file.write(f'''host = "{self.name}"
status = "unix:{dir}/{self.name}.status"
[[volume]]
name = "v"
[volume.control]
mode = "static"
window_start = 4096
window_max = 4096
''')
            for disk in range(disks):
                name = "" if disks == 1 else disk
                file.write(f'''[[volume.disk]]
name = "d{name}"
path = "{data}"
offset = {disk * SIZE // disks}
size = {SIZE // disks}
read_only = true
direct = "{direct}"
listen = "{listen}{name}"
''')
        return [self.options.parda, "serve", "-c", config]


class Guest(Server):
    name = "vhost"

    def __init__(self, options, dir, data, direct, disks=1):
        self.options, self.socket = options, os.path.join(dir, "guest.sock")
        command = self.agent(dir, data, direct, f"vhost-user:{self.socket}", disks)
        self.start(command, self.socket if disks == 1 else f"{self.socket}{disks - 1}")

    def load(self, depth):
        return self.run("vhost-user", self.socket, depth)


class Daemon(Server):
    name = "qsd"

    def __init__(self, options, dir, data, direct):
        self.options, self.socket = options, os.path.join(dir, "qsd.sock")
        if os.path.exists(self.socket):
            os.remove(self.socket)
        file = f"driver=file,filename={data},node-name=f,read-only=on,cache.direct={direct},aio={options.aio}"
        export = f"type=vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path={self.socket},num-queues=1"
        self.start(["qemu-storage-daemon", "--blockdev", file, "--export", export], self.socket)

    def load(self, depth):
        return self.run("vhost-user", self.socket, depth)


class Nbd(Server):
    name = "nbd"

    def __init__(self, options, dir, data, direct):
        self.options, self.socket = options, os.path.join(dir, "nbd.sock")
        self.start(self.agent(dir, data, direct, f"unix:{self.socket}"), self.socket)

    def load(self, depth):
        return self.run("nbd", f"nbd+unix:///d?socket={self.socket}", depth)


main()
