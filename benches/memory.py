#!/usr/bin/env python3
"""What idle clients and outstanding IOs take of the agent's memory (VmRSS).
Usage: benches/memory.py [PARDA]"""
import json, os, resource, socket, struct, subprocess, sys, tempfile, time

PARDA = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else "target/release/parda")
READ, BLOCK, RECORD = 0, 64 << 10, 512
CONFIG = """
host = "host"
status = "unix:status"
[[volume]]
name = "volume"
[volume.limits]
connections_per_peer = 1024
connections_per_export = 1024
[[volume.disk]]
name = "disk"
path = "data"
direct = "off"
listen = "unix:nbd"
"""

resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    # Holes would be answered without data.
    open("data", "wb").write(os.urandom(32 << 20))
    open("host.toml", "w").write(CONFIG)
    agent = subprocess.Popen([PARDA, "serve", "-c", "host.toml"], stderr=subprocess.DEVNULL)

    def until(true_now):
        while not true_now():
            assert agent.poll() is None, "the agent ended"
            time.sleep(0.05)

    def resident():
        lines = open(f"/proc/{agent.pid}/status")
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def volume():
        line = [PARDA, "status", "--socket", "status", "--json", "-"]
        return json.loads(subprocess.run(line, capture_output=True, check=True).stdout)["volumes"][0]

    def connect():
        client = socket.socket(socket.AF_UNIX)
        client.connect("nbd")
        client.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 4) + b"disk")
        return client

    def close(clients):
        for client in clients:
            client.close()
        until(lambda: volume()["connections"] == 0)
        time.sleep(5)

    until(lambda: os.path.exists("nbd") and os.path.exists("status"))
    volume()
    print(f"no clients: {resident()} KiB")
    clients = []
    for n in (100, 1000):
        clients += [connect() for _ in range(n - len(clients))]
        until(lambda: volume()["connections"] == n)
        print(f"{n} idle clients: {resident()} KiB")
    close(clients)
    for n in (4, 16):
        clients = [connect() for _ in range(n)]
        until(lambda: volume()["connections"] == n)
        before = resident()
        for client in clients:
            for i in range(64):
                place = i * BLOCK
                client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, READ, i, place, BLOCK))
        time.sleep(1)
        took, granted = resident() - before, volume()["memory"]["granted"]
        reads = granted / (BLOCK + RECORD)
        print(f"{reads:.0f} reads of 64 KiB outstanding: {took} KiB, {took / reads:.1f} KiB each")
        close(clients)
    agent.terminate()
    agent.wait()
