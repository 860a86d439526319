#!/usr/bin/env python3
"""Measures what the scripts of a framework cost servers: records them from a run of it, and replays them.

Recorded are the scripts that clients call, with all arguments and in order, as MONITOR shows them; run the framework
twice meanwhile, so that the second run finds its scripts loaded. Replayed is that second run: its calls leave the
same keys behind, since their clock is an argument. Blocking ZPOPs become plain ones. Each connection has a database of
its own. The servers take turns in random order, as the machine is faster and slower by the minute.

    replay.py record PORT FILE              until it is ended
    replay.py play FILE ROUNDS PORT:PID [PORT:PID ...]

Shown for each server are the median of its CPU a call, and of its ratio to the first server's in the same round.
"""

import glob
import hashlib
import random
import re
import socket
import statistics
import sys

PIPELINE = 16
CONNECTIONS = 3
LINE = re.compile(rb'\+?[\d.]+ \[\d+ (\S+)\] (.*)')
WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(rb'\\(x[0-9a-f]{2}|.)')
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def plain(word):
    """A word as it was sent."""

    def unescape(match):
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else ESCAPES.get(code, code)

    return ESCAPED.sub(unescape, word)


def request(words):
    """A request's bytes."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def connect(port):
    """A connection to a server here."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def record(port, path):
    """Writes what MONITOR shows to a file."""
    connection = connect(port)
    connection.sendall(request([b"MONITOR"]))
    with open(path, "wb", buffering=0) as file:
        while data := connection.recv(1 << 20):
            file.write(data)


def read(path):
    """The script texts of a recording, and the calls of its last run."""
    texts, runs = set(), [[]]
    with open(path, "rb") as file:
        for line in file:
            match = LINE.match(line)
            if not match or match[1] == b"lua":
                continue
            words = [plain(word) for word in WORD.findall(match[2])]
            name = words[0].lower()
            if name == b"flushdb":
                runs.append([])
            elif name == b"eval":
                texts.add(words[1])
                runs[-1].append([b"EVALSHA", hashlib.sha1(words[1]).hexdigest().encode(), *words[2:]])
            elif name == b"evalsha":
                runs[-1].append(words)
            elif name in (b"bzpopmin", b"bzpopmax"):
                runs[-1].append([words[0][1:], words[1]])
            elif name == b"script" and words[1].lower() == b"load":
                texts.add(words[2])
    return texts, [run for run in runs if run][-1]


def mark(number):
    """What a server is asked to echo behind a batch."""
    return b"end of batch %d" % number


def send(connection, batch, number):
    """Sends a batch."""
    connection.sendall(batch + request([b"ECHO", mark(number)]))


def wait(connection, number):
    """Waits for all replies to a batch."""
    wanted, tail = b"$%d\r\n%s\r\n" % (len(mark(number)), mark(number)), b""
    while not tail.endswith(wanted):
        data = connection.recv(1 << 20)
        assert data, "the server closed the connection"
        assert b"NOSCRIPT" not in data, "a script is missing"
        tail = (tail + data)[-len(wanted):]


def connections_to(port, texts):
    """Connections to a server that knows the scripts."""
    connections = [connect(port) for _ in range(CONNECTIONS)]
    send(connections[0], b"".join(request([b"SCRIPT", b"LOAD", text]) for text in texts), 0)
    wait(connections[0], 0)
    for database, connection in enumerate(connections):
        send(connection, request([b"SELECT", b"%d" % database]), 0)
        wait(connection, 0)
    return connections


def play(connections, batches):
    """Replays the calls on all connections at once, from empty databases."""
    for number, batch in enumerate([request([b"FLUSHDB"]), *batches]):
        for connection in connections:
            if number:
                wait(connection, number - 1)
            send(connection, batch, number)
    for connection in connections:
        wait(connection, len(batches))


def cpu_us(pid):
    """What the threads of a process have used of the processors."""
    nanoseconds = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as file:
            nanoseconds += int(file.read().split()[0])
    return nanoseconds / 1000


def main():
    """Records or plays."""
    if sys.argv[1] == "record":
        record(int(sys.argv[2]), sys.argv[3])
        return
    texts, calls = read(sys.argv[2])
    batches = [b"".join(map(request, calls[at : at + PIPELINE])) for at in range(0, len(calls), PIPELINE)]
    servers = [tuple(map(int, word.split(":"))) for word in sys.argv[4:]]
    connections = {server: connections_to(server[0], texts) for server in servers}
    spent = {server: [] for server in servers}
    # The first two rounds warm up.
    for number in range(int(sys.argv[3]) + 2):
        for server in random.sample(servers, len(servers)):
            before = cpu_us(server[1])
            play(connections[server], batches)
            if number >= 2:
                spent[server].append((cpu_us(server[1]) - before) / len(calls) / CONNECTIONS)
    for server in servers:
        ratio = statistics.median(mine / first for mine, first in zip(spent[server], spent[servers[0]]))
        print(f"port {server[0]}: {statistics.median(spent[server]):.1f} µs of CPU a call, {ratio:.2f}")


if __name__ == "__main__":
    main()
