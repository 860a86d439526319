#!/usr/bin/env python3
"""Runs jobs through dramatiq, whose broker is one Lua script over keys that it names itself.

Workers are killed at random; the messages they held go back to their queue when their heartbeat stays away. dramatiq
promises each job at least once: those done again are the ones that a killed worker had not acknowledged.

    dramatiq_jobs.py PORT DATABASE SEED   (workers are started by dramatiq's own command line, which imports this file)
"""

import os
import random
import sys
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from fleet import Fleet, Ledger, become

PORT, DATABASE = (int(word) for word in os.environ.get("DRAMATIQ_JOBS", " ".join(sys.argv[1:3])).split())
JOBS = 1_000
WORKERS = ["one", "two"]
THREADS = 4
KILLS = 4

connection = redis.Redis(host="127.0.0.1", port=PORT, db=DATABASE)
ledger = Ledger(connection)
# A worker is dead after two seconds without a sign of it; each 50th fetch looks for dead ones.
broker = RedisBroker(
    host="127.0.0.1", port=PORT, db=DATABASE, heartbeat_timeout=2000, maintenance_chance=50_000
)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=10, min_backoff=10)
def note(number):
    """Fails once in a while, and is tried again."""
    if number % 100 == 0 and connection.sadd("failed", number):
        raise RuntimeError("on purpose")
    time.sleep(number % 5 / 1000)
    ledger.note(number)


def work(_name):
    """Becomes a worker."""
    words = [sys.executable, "-m", "dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", str(THREADS)]
    become(words, {"DRAMATIQ_JOBS": f"{PORT} {DATABASE}"})


def main():
    """Sends jobs, kills workers, and looks at the ledger."""
    connection.flushdb()
    with Fleet(work, WORKERS, random.Random(int(sys.argv[3]))) as workers:
        for number in range(JOBS):
            if number % 10:
                note.send(number)
            else:
                note.send_with_options(args=(number,), delay=50)
        workers.kill_some(ledger, JOBS, KILLS)
        ledger.wait(JOBS)
        ledger.check(range(JOBS), KILLS * THREADS)
    print(f"dramatiq: {JOBS} jobs done, {ledger.doubled()} again after {KILLS} kills")
    connection.flushdb()


if __name__ == "__main__":
    main()
