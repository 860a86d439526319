#!/usr/bin/env python3
"""Hands on what dead consumers left, through kombu: the transport looks for it only when its own wait expires.

A consumer takes a message and is killed before it acknowledges it. The next consumer polls for one second with
BRPOP of one second, in a loop of `drain_events` or by ConsumerMixin. At its first poll without an event, and at
every tenth after that, the transport gives back the messages whose visibility timeout has passed. A server that
answers BRPOP before the consumer's own wait expires keeps it from doing so.

    kombu_restore.py PORT DATABASE SEED [PAIRS]    (PAIRS consumers of each kind, all at once)
"""

import os
import random
import signal
import socket
import sys
import time
import traceback

import kombu
import redis
from kombu.mixins import ConsumerMixin

URL = f"redis://127.0.0.1:{sys.argv[1]}/{sys.argv[2]}"
PAIRS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
VISIBILITY_SECONDS = 2
# The transport looks for messages to give back at every tenth of its polls without an event, first before their
# visibility timeout has passed: eleven polls are usual. On a busy machine a poll may have an event just before it
# expires, and does not count.
POLLS_MAX = 60
SECONDS_MAX = 600
QUEUE = kombu.Queue("jobs", kombu.Exchange("jobs"), routing_key="jobs")
KINDS = ["drain_events", "ConsumerMixin"]


def connect(name):
    """A connection with keys of its own."""
    options = {"visibility_timeout": VISIBILITY_SECONDS, "global_keyprefix": f"{name}:"}
    return kombu.Connection(URL, transport_options=options)


def take_and_wait(name):
    """Takes the message, says so, and waits to be killed."""
    taken = []
    with connect(name) as connection:
        with connection.Consumer(QUEUE, callbacks=[lambda body, message: taken.append(body)]):
            while not taken:
                connection.drain_events(timeout=SECONDS_MAX)
            redis.Redis.from_url(URL).lpush(f"{name}:taken", "1")
            time.sleep(SECONDS_MAX)


def drain(name):
    """Polls until the message is there; returns the polls without it."""
    taken, polls = [], 0
    with connect(name) as connection:
        with connection.Consumer(QUEUE, callbacks=[lambda body, message: (taken.append(body), message.ack())]):
            while not taken:
                try:
                    connection.drain_events(timeout=1)
                except socket.timeout:
                    polls += 1
                    assert polls <= POLLS_MAX, f"no message after {polls} polls"
    return polls


class Mixin(ConsumerMixin):
    """A consumer that ends with its first message."""

    def __init__(self, connection):
        self.connection, self.polls = connection, 0

    def get_consumers(self, Consumer, channel):  # noqa: N803
        """The one queue."""
        return [Consumer(QUEUE, callbacks=[self.on_message])]

    def on_message(self, _body, message):
        """Ends the loop."""
        message.ack()
        self.should_stop = True

    def on_iteration(self):
        """Counts polls: one comes before each, and one of them has the message."""
        self.polls += 1
        assert self.polls <= POLLS_MAX, f"no message after {self.polls} polls"


def mixin(name):
    """The same by ConsumerMixin."""
    with connect(name) as connection:
        consumer = Mixin(connection)
        consumer.run()
        return consumer.polls - 1


def start(work):
    """Runs `work` in a process of its own."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def consume(kind, name, delay):
    """Takes over from a consumer that was killed, and notes how long it took."""
    store = redis.Redis.from_url(URL)
    with connect(name) as connection:
        connection.SimpleQueue(QUEUE).put({"job": name})
    victim = start(lambda: take_and_wait(name))
    assert store.blpop(f"{name}:taken", SECONDS_MAX), "nobody took the message"
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    time.sleep(delay)
    since = time.monotonic()
    polls = {"drain_events": drain, "ConsumerMixin": mixin}[kind](name)
    store.hset("results", name, f"{polls} {time.monotonic() - since:.2f}")


def main():
    """Runs all consumers at once, and prints their polls."""
    store = redis.Redis.from_url(URL)
    store.flushdb()
    chance = random.Random(int(sys.argv[3]))
    trials = [(kind, f"{kind}-{at}", chance.random()) for kind in KINDS for at in range(PAIRS)]
    pids = [start(lambda trial=trial: consume(*trial)) for trial in trials]
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"a consumer ended with {status}"
    for kind in KINDS:
        results = [store.hget("results", name).decode().split() for which, name, _ in trials if which == kind]
        polls, seconds = [int(polls) for polls, _ in results], [float(seconds) for _, seconds in results]
        print(f"kombu {kombu.__version__}, {kind}: after {min(polls)} to {max(polls)} polls, {min(seconds)} to {max(seconds)} s")
    store.flushdb()


if __name__ == "__main__":
    main()
