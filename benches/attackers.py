"""Hostile clients: 512 connections of 8 processes, all of one kind, that go on until they are ended.

A connection is begun, and then visited again and again. One that is over (the agent closed it, or the kind lets it go) is made anew.
"""
import multiprocessing
import os
import select
import socket
import struct
import threading
import time

PROCESSES, SOCKETS = 8, 64


def hello(export):
    """Client flags, and EXPORT_NAME."""
    return struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(export)) + export


# The disk of the attackers, of as many shares as that of the client beside them.
HELLO = hello(b"theirs")
# The greeting; the export's size and flags.
GREETING, ANSWER = 18, 10

READ, WRITE = 0, 1
LARGE = 64 << 10


def request(command, length, offset=0):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, 0, offset, length)


def let_in(one):
    """Whether the handshake came to its end."""
    return receive(one, GREETING + ANSWER)


def receive(one, length):
    while length > 0:
        part = one.recv(length)
        if not part:
            return False
        length -= len(part)
    return True


def is_there(one):
    """Whether the agent has the connection open, without reading from it."""
    poll = select.poll()
    poll.register(one, select.POLLRDHUP)
    return not poll.poll(0)


class Handshakes:
    """Come, say a whole handshake, go, and come again, as fast as they are let in."""

    def begin(self, one):
        one.send(HELLO)

    def visit(self, one):
        self.done = receive(one, GREETING)
        return False


class HalfHandshakes:
    """Say half of a handshake, and stay."""

    pause = 0.1

    def begin(self, one):
        one.send(HELLO[:10])

    def visit(self, one):
        return is_there(one)


class HalfRequests:
    """Send the header of a write and half of its data, and stay."""

    pause = 0.1

    def begin(self, one):
        one.send(HELLO)
        if let_in(one):
            one.send(request(WRITE, LARGE) + bytes(LARGE // 2))

    def visit(self, one):
        return is_there(one)


class NeverRead:
    """Ask for 4 MiB, and take no reply."""

    pause = 0.1

    def begin(self, one):
        one.send(HELLO)
        if let_in(one):
            one.send(b"".join(request(READ, LARGE, LARGE * n) for n in range(64)))

    def visit(self, one):
        return is_there(one)


class SlowReaders(NeverRead):
    """The same, but take 4 KiB every 0.1 s: a little more than what keeps them from being dropped for it (1 MiB in 30 s)."""

    def visit(self, one):
        one.setblocking(False)
        try:
            return bool(one.recv(4096))
        except BlockingIOError:
            return True


class MidWrites:
    """Send the header of a write and half of its data, go, and come again."""

    def begin(self, one):
        one.send(HELLO)

    def visit(self, one):
        self.done = let_in(one)
        if self.done:
            one.send(request(WRITE, LARGE) + bytes(LARGE // 2))
        return False


class Refused:
    """Send requests of a length of zero, which are refused, as fast as they are answered."""

    BATCH = 16
    # Without structured replies.
    REPLY = 16

    def begin(self, one):
        one.send(HELLO)
        if let_in(one):
            one.send(request(READ, 0) * self.BATCH)

    def visit(self, one):
        self.done = receive(one, self.REPLY * self.BATCH)
        if self.done:
            one.send(request(READ, 0) * self.BATCH)
        return self.done


KINDS = {
    "handshakes": Handshakes,
    "half-handshakes": HalfHandshakes,
    "half-writes": HalfRequests,
    "never-read": NeverRead,
    "slow-readers": SlowReaders,
    "gone-in-mid-write": MidWrites,
    "refused-requests": Refused,
}


class Attack:
    """An attack on the agent at `path`, until `end`."""

    def __init__(self, kind, path):
        self.counts = [multiprocessing.Value("q", 0) for _ in range(PROCESSES)]
        self.processes = [multiprocessing.Process(target=attack, args=(kind, path, count), daemon=True) for count in self.counts]
        [process.start() for process in self.processes]

    def done(self):
        """Visits that were of use to the attacker, in all."""
        return sum(count.value for count in self.counts)

    def end(self):
        [process.kill() for process in self.processes]
        [process.join() for process in self.processes]


def attack(name, path, count):
    kind, sockets = KINDS[name](), []
    pause = getattr(kind, "pause", 0)
    while True:
        while len(sockets) < SOCKETS:
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5)
            try:
                one.connect(path)
                kind.begin(one)
                sockets.append(one)
            except OSError:
                # Turned away.
                one.close()
        staying = []
        for one in sockets:
            kind.done = False
            try:
                stays = kind.visit(one)
            except OSError:
                stays = False
            count.value += kind.done
            if stays:
                staying.append(one)
            else:
                one.close()
        sockets = staying
        time.sleep(pause)


class Newcomers:
    """Every 50 ms a client that connects, in a process of its own, so that each is a peer of its own; and how long its handshake took."""

    def __init__(self, path):
        self.over, self.waits = threading.Event(), []
        self.thread = threading.Thread(target=self.run, args=(path,))
        self.thread.start()

    def run(self, path):
        while not self.over.wait(0.05):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                # Whatever happens, it ends here.
                try:
                    come(path, write)
                finally:
                    os._exit(0)
            os.close(write)
            waited = os.read(read, 8)
            os.close(read)
            os.waitpid(child, 0)
            self.waits.append(struct.unpack("d", waited)[0] if waited else 30.0)

    def end(self):
        """How long each waited, in seconds."""
        self.over.set()
        self.thread.join()
        return self.waits


def come(path, answer):
    """Connects, and writes how long it took."""
    began = time.monotonic()
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(30)
    one.connect(path)
    one.send(hello(b"disk"))
    if let_in(one):
        os.write(answer, struct.pack("d", time.monotonic() - began))
