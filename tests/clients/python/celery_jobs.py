#!/usr/bin/env python3
"""Runs jobs through Celery, and asks a rate limiter for more than it gives.

Workers that are told to stop end the jobs they have and leave the others. None is killed: what such a one held,
Celery gives to another after minutes only. Results come back through the server, too. Chords wait for all of a
group by counting in it.

    celery_jobs.py PORT        (workers are started by Celery's own command line, which imports this file)
"""

import os
import signal
import subprocess
import sys
import time

import limits
import redis
from celery import Celery, chord, group

PORT = os.environ.get("CELERY_JOBS_PORT") or sys.argv[1]
URL = f"redis://127.0.0.1:{PORT}/9"
JOBS = 1000
CHORDS = 10
WORKERS = 2
STOPS = 2
SECONDS_MAX = 100

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    result_expires=600,
)


@app.task
def square(number):
    """A little work."""
    return number * number


@app.task
def total(numbers):
    """The end of a chord."""
    return sum(numbers)


def start(name):
    """A worker as a process of its own, in a group that is killed as a whole."""
    words = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "-c", "2", "-n", name, "-l", "ERROR"]
    folder = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen(
        words, cwd=folder, env=os.environ | {"CELERY_JOBS_PORT": PORT}, start_new_session=True
    )


def stop(worker):
    """Ends a worker once it has done what it holds."""
    worker.terminate()
    assert worker.wait(SECONDS_MAX) == 0, "a worker did not stop well"


def kill(worker):
    """Ends a worker and its children at once."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def limit_rate():
    """Of twenty requests, five are let through."""
    storage = limits.storage.storage_from_string(URL)
    item = limits.parse("5/minute")
    for strategy in (limits.strategies.FixedWindowRateLimiter, limits.strategies.MovingWindowRateLimiter):
        limiter = strategy(storage)
        passed = sum(limiter.hit(item, strategy.__name__, "somebody") for _ in range(20))
        assert passed == 5, f"{strategy.__name__} let {passed} of 5 through"


def main():
    """Sends jobs, kills workers, and checks every result."""
    connection = redis.Redis(host="127.0.0.1", port=int(PORT), db=9)
    connection.flushdb()
    limit_rate()
    workers = [start(f"worker{number}@here") for number in range(WORKERS)]
    try:
        results = group(square.s(number) for number in range(JOBS // 2))()
        for number in range(STOPS):
            deadline = time.time() + SECONDS_MAX
            while results.completed_count() < 50 * (number + 1) and time.time() < deadline:
                time.sleep(0.05)
            stop(workers.pop(0))
            workers.append(start(f"later{number}@here"))
        later = group(square.s(number) for number in range(JOBS // 2, JOBS))()
        chords = [chord((square.s(n) for n in range(5)), total.s())() for _ in range(CHORDS)]
        assert results.get(timeout=SECONDS_MAX) + later.get(timeout=SECONDS_MAX) == [n * n for n in range(JOBS)]
        assert [result.get(timeout=SECONDS_MAX) for result in chords] == [30] * CHORDS
    finally:
        for worker in workers:
            kill(worker)
    connection.flushdb()
    print(f"celery: {JOBS + 6 * CHORDS} jobs done")


if __name__ == "__main__":
    main()
