#!/usr/bin/env python3
"""NBD over TLS: `parda serve` beside qemu-nbd and nbdkit, with one client for all, libnbd's nbdcopy.

Page cache, a unix socket, TLS 1.3 with certificates made for the purpose. Reads in order, to
nowhere. The servers take turns. The client decrypts, on a core of its own: its CPU per IO is listed beside the server's.

  benches/tls.py target/release/parda [DIR, default /var/tmp] [ROUNDS, default 5]
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZE = 512 << 20
# Bytes of a request, and how many are outstanding.
LOADS = [(4096, 16), (1 << 20, 4)]
TICK = os.sysconf("SC_CLK_TCK")


def main():
    parda = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else "/var/tmp") as dir:
        data = os.path.join(dir, "data")
        with open(data, "wb") as file:
            file.write(os.urandom(1 << 20) * (SIZE >> 20))
        certificates(dir)
        servers = {
            "parda": [parda, "serve", "-c", configuration(dir, data)],
            "qemu-nbd": ["qemu-nbd", "--persistent", "--shared=0", "--export-name=disk", "--read-only",
                         f"--socket={dir}/qemu-nbd.sock", "--object", f"tls-creds-x509,id=tls,endpoint=server,verify-peer=no,dir={dir}",
                         "--tls-creds=tls", "--image-opts",
                         f"driver=raw,file.driver=file,file.filename={data},file.locking=off,file.aio=io_uring"],
            "nbdkit": ["nbdkit", "--foreground", "--exportname=disk", "--tls=require", f"--tls-certificates={dir}",
                       "--unix", f"{dir}/nbdkit.sock", "file", data],
        }
        running = {name: start(name, command, dir) for name, command in servers.items()}
        try:
            print("| load | server | IOPS, median (least to most) | MB/s | server CPU µs/IO | client CPU µs/IO | parda: IOPS | parda: CPU |")
            print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
            for load in LOADS:
                samples = {name: [] for name in servers}
                for _ in range(rounds):
                    for name in servers:
                        samples[name].append(measure(dir, name, running[name].pid, *load))
                medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in samples.items()}
                for name, rows in samples.items():
                    iops, rate, cpu, client = medians[name]
                    all = [row[0] for row in rows]
                    ratio = "| |" if name == "parda" else f"| × {medians['parda'][0] / iops:.2f} | × {medians['parda'][2] / cpu:.2f} |"
                    print(f"| {load[0] >> 10} KiB, depth {load[1]} | {name} | {iops:.0f} ({min(all):.0f} to {max(all):.0f}) "
                          f"| {rate / 1e6:.0f} | {cpu:.1f} | {client:.1f} {ratio}")
        finally:
            for server in running.values():
                server.terminate()
                server.wait()


def certificates(dir):
    """A CA and a certificate for localhost, under the names that each server looks for."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=dir, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca-cert.pem", "-subj", "/CN=bench CA",
            "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *key, "-keyout", "server-key.pem", "-out", "server-cert.pem", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", "ca-cert.pem", "-CAkey", "ca-key.pem")


def configuration(dir, data):
    path = os.path.join(dir, "parda.toml")
    with open(path, "w") as file:
        file.write(f"""host = "bench"
[[listener]]
address = "unix:{dir}/parda.sock"
tls = {{ certificate = "{dir}/server-cert.pem", key = "{dir}/server-key.pem" }}
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
listen = "unix:{dir}/parda.sock"
direct = "off"
read_only = true
""")
    return path


def start(name, command, dir):
    with open(os.path.join(dir, f"{name}.log"), "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    until = time.monotonic() + 10
    while not os.path.exists(f"{dir}/{name}.sock"):
        if time.monotonic() > until or server.poll() is not None:
            raise SystemExit(f"{name} does not start: {open(f'{dir}/{name}.log').read()}")
        time.sleep(0.05)
    time.sleep(0.1)
    return server


def measure(dir, name, pid, size, depth):
    uri = f"nbds+unix:///disk?socket={dir}/{name}.sock&tls-hostname=localhost&tls-certificates={dir}"
    before, begun = ticks(pid), time.monotonic()
    client = subprocess.Popen(["nbdcopy", "--no-extents", "--connections=1", f"--requests={depth}",
                               f"--request-size={size}", uri, "null:"])
    _, status, usage = os.wait4(client.pid, 0)
    time_taken, cpu = time.monotonic() - begun, (ticks(pid) - before) / TICK
    if status != 0:
        raise SystemExit(f"nbdcopy fails with {name}")
    ios = SIZE / size
    return ios / time_taken, SIZE / time_taken, cpu / ios * 1e6, (usage.ru_utime + usage.ru_stime) / ios * 1e6


def ticks(pid):
    """User and system time of a process, in ticks."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


main()
