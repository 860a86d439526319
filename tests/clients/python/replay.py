#!/usr/bin/env python3
"""Measures what the scripts of a framework cost a server: records them from a run of it, and replays them.

Recorded are the scripts that clients call, with all arguments and in order, as MONITOR shows them; run the framework
twice meanwhile, so that the second run finds its scripts loaded. Replayed is that second run: its calls leave the
same keys behind, since their clock is an argument. Blocking ZPOPs become plain ones. Each connection has a database of
its own.

    replay.py record PORT FILE              until it is ended; then, each in turn:
    replay.py play FILE PORT PID [CONNECTIONS [SECONDS]]
"""

import hashlib
import multiprocessing
import os
import re
import socket
import sys
import time

PIPELINE = 16
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


def ask(connection, batch, number):
    """Sends a batch and waits for its replies."""
    mark = b"end of batch %d" % number
    connection.sendall(batch + request([b"ECHO", mark]))
    wanted, tail = b"$%d\r\n%s\r\n" % (len(mark), mark), b""
    errors = 0
    while not tail.endswith(wanted):
        data = connection.recv(1 << 20)
        assert data, "the server closed the connection"
        errors += data.count(b"NOSCRIPT")
        tail = (tail + data)[-len(wanted):]
    assert not errors, "a script is missing"


def play(texts, calls, port, database, until):
    """Replays the calls again and again, from an empty database each time; how many it sent."""
    connection = connect(port)
    ask(connection, b"".join(request([b"SCRIPT", b"LOAD", text]) for text in texts), 0)
    ask(connection, request([b"SELECT", b"%d" % database]), 0)
    batches = [b"".join(map(request, calls[at : at + PIPELINE])) for at in range(0, len(calls), PIPELINE)]
    sent = 0
    while time.monotonic() < until:
        ask(connection, request([b"FLUSHDB"]), 0)
        for number, batch in enumerate(batches):
            ask(connection, batch, number)
        sent += len(calls)
    return sent


def cpu_seconds(pid):
    """What a process has used of the processors."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    """Records or plays."""
    if sys.argv[1] == "record":
        record(int(sys.argv[2]), sys.argv[3])
        return
    texts, calls = read(sys.argv[2])
    port, pid = int(sys.argv[3]), int(sys.argv[4])
    connections, seconds = [int(word) for word in (*sys.argv[5:], *("1", "3")[len(sys.argv) - 5 :])]
    before, begun = cpu_seconds(pid), time.monotonic()
    jobs = [(texts, calls, port, database, begun + seconds) for database in range(connections)]
    with multiprocessing.get_context("fork").Pool(connections) as pool:
        sent = sum(pool.starmap(play, jobs))
    took, used = time.monotonic() - begun, cpu_seconds(pid) - before
    print(f"{len(calls)} calls, {sent} sent: {used / sent * 1e6:.1f} µs of CPU each, {sent / took:.0f} a second")


if __name__ == "__main__":
    main()
