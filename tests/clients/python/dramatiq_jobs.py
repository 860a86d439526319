#!/usr/bin/env python3
"""Runs jobs through dramatiq, whose broker is one Lua script over keys that it names itself.

Worker processes are killed while they work; the messages they held go back to their queue when their heartbeat
stays away, so each is done at least once. What was done is counted in a set.

    dramatiq_jobs.py PORT        (workers are started by dramatiq's own command line, which imports this file)
"""

import os
import signal
import subprocess
import sys
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

PORT = int(os.environ.get("DRAMATIQ_JOBS_PORT") or sys.argv[1])
JOBS = 1000
WORKERS = 2
KILLS = 3
SECONDS_MAX = 100

connection = redis.Redis(host="127.0.0.1", port=PORT, db=9)
# A worker is dead after two seconds without a sign of it; each 50th fetch looks for dead ones.
broker = RedisBroker(
    host="127.0.0.1", port=PORT, db=9, heartbeat_timeout=2000, maintenance_chance=50_000
)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=10, min_backoff=10)
def note(number):
    """Fails once in a while, and is tried again."""
    if number % 100 == 0 and connection.sadd("failed", number):
        raise RuntimeError("on purpose")
    connection.sadd("done", number)


def start():
    """A worker as a process of its own, in a group that is killed as a whole."""
    words = [sys.executable, "-m", "dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "4"]
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = os.environ | {"DRAMATIQ_JOBS_PORT": str(PORT)}
    return subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)


def kill(worker):
    """Ends a worker and its children at once."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def done_after(count):
    """Waits until that many jobs are done; how many are."""
    deadline = time.time() + SECONDS_MAX
    while connection.scard("done") < count and time.time() < deadline:
        time.sleep(0.02)
    return connection.scard("done")


def main():
    """Sends jobs, kills workers, and counts what was done."""
    connection.flushdb()
    workers = [start() for _ in range(WORKERS)]
    try:
        for number in range(JOBS):
            if number % 10:
                note.send(number)
            else:
                note.send_with_options(args=(number,), delay=50)
        for turn in range(KILLS):
            done_after(100 * (turn + 1))
            kill(workers.pop(0))
            workers.append(start())
        done = done_after(JOBS)
        assert done == JOBS, f"{done} of {JOBS} jobs were done"
    finally:
        for worker in workers:
            kill(worker)
    connection.flushdb()
    print(f"dramatiq: {JOBS} jobs done")


if __name__ == "__main__":
    main()
