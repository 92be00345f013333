#!/usr/bin/env python3
"""What metrics and history take of an agent with 1,000 disks: CPU time by thread and memory, without and with a scrape a second.
Usage: benches/metrics.py [PARDA] [--active DISKS] [--time SECONDS]"""
import argparse, os, resource, socket, struct, subprocess, tempfile, threading, time, urllib.request

arguments = argparse.ArgumentParser()
arguments.add_argument("parda", nargs="?", default="target/release/parda")
arguments.add_argument("--disks", type=int, default=1000)
arguments.add_argument("--active", type=int, default=0, help="disks that do 20 reads a second")
arguments.add_argument("--time", type=float, default=30)
given = arguments.parse_args()
PARDA = os.path.realpath(given.parda)
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
TICK = os.sysconf("SC_CLK_TCK")

resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
directory = tempfile.TemporaryDirectory()
os.chdir(directory.name)
with open("host.toml", "w") as config:
    config.write(f'host = "host"\n[http]\naddress = "tcp:127.0.0.1:{PORT}"\n[[volume]]\nname = "array"\n')
    for disk in range(given.disks):
        config.write(f'[[volume.disk]]\nname = "vm{disk}"\npath = "disk{disk}"\nlisten = "unix:nbd"\n')
        with open(f"disk{disk}", "wb") as data:
            data.truncate(1 << 20)
    # Holes would be answered without data.
    for disk in range(given.active):
        with open(f"disk{disk}", "wb") as data:
            data.write(os.urandom(1 << 20))


def scrape():
    # As Prometheus asks.
    accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
    asked = urllib.request.Request(f"http://127.0.0.1:{PORT}/metrics", headers=accept)
    with urllib.request.urlopen(asked) as answer:
        return answer.read()


def client(disk):
    name = f"vm{disk}".encode()
    stream = socket.socket(socket.AF_UNIX)
    stream.connect("nbd")
    file = stream.makefile("rwb")
    file.read(18)
    file.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
    file.flush()
    file.read(10)
    return file


def load(stopped):
    clients = [client(disk) for disk in range(given.active)]
    turn = 0
    while not stopped.wait(0.05):
        turn += 1
        for file in clients:
            file.write(struct.pack(">IHHQQI", 0x25609513, 0, 0, turn, turn % 256 * 4096, 4096))
            file.flush()
        for file in clients:
            file.read(16 + 4096)


def threads(agent):
    """CPU time of each thread in seconds, by name, and of the process with those that have ended."""
    process = open(f"/proc/{agent}/stat").read().rsplit(")", 1)[1].split()
    spent = {"process": sum(map(int, process[11:13])) / TICK}
    for task in os.listdir(f"/proc/{agent}/task"):
        name = open(f"/proc/{agent}/task/{task}/comm").read().strip()
        ran = int(open(f"/proc/{agent}/task/{task}/schedstat").read().split()[0])
        spent[name] = spent.get(name, 0) + ran / 1e9
    return spent


def resident(agent):
    lines = open(f"/proc/{agent}/status")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure(agent, what, scrapes):
    before, began, longest, size = threads(agent), time.monotonic(), 0, 0
    while time.monotonic() - began < given.time:
        at = time.monotonic()
        if scrapes:
            size = len(scrape())
            longest = max(longest, time.monotonic() - at)
        time.sleep(max(0, at + 1 - time.monotonic()))
    seconds, after = time.monotonic() - began, threads(agent)
    part = {name: 100 * (after[name] - before.get(name, 0)) / seconds for name in after}
    by_thread = ", ".join(f"{name} {part[name]:.2f}" for name in sorted(part) if part[name] >= 0.02 and name != "process")
    print(f"{what}: {part['process']:.2f} % of a core ({by_thread}), {resident(agent):.1f} MiB", end="")
    print(f", {size / 1e6:.1f} MB in at most {longest * 1e3:.0f} ms" if scrapes else "")


agent = subprocess.Popen([PARDA, "serve", "-c", "host.toml"], stderr=subprocess.DEVNULL)
try:
    for _ in range(300):
        try:
            scrape()
            break
        except OSError:
            time.sleep(0.1)
    stopped = threading.Event()
    loader = threading.Thread(target=load, args=(stopped,))
    if given.active:
        loader.start()
    time.sleep(5)
    for turn in (1, 2):
        measure(agent.pid, f"{given.disks} disks, {given.active} active, no scrape", False)
        measure(agent.pid, f"{given.disks} disks, {given.active} active, a scrape a second", True)
    stopped.set()
    if given.active:
        loader.join()
finally:
    agent.terminate()
    agent.wait()
