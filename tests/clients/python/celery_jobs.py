#!/usr/bin/env python3
"""Runs jobs through Celery: lists, a script that locks, transactions and publish and subscribe; results come back.

Workers are killed at random, and so are single processes of a worker's pool; one worker is told to stop and ends the
jobs it has. With late acknowledgements, what a killed worker held is given to another: one that starts when the
visibility timeout is over looks for it. Those done again are the ones that were held. Celery's transport pops a
message and then notes that it did: of a killed worker, one may be lost so, and is sent again here. Chords wait for
all of a group by counting in it.

    celery_jobs.py PORT DATABASE SEED   (workers are started by Celery's own command line, which imports this file)
"""

import os
import pathlib
import random
import signal
import sys
import time

import celery
import redis
from celery import Celery, chord, group

from fleet import SECONDS_MAX, Fleet, Ledger, become, until

PORT, DATABASE = os.environ.get("CELERY_JOBS", " ".join(sys.argv[1:3])).split()
URL = f"redis://127.0.0.1:{PORT}/{DATABASE}"
JOBS = 1_000
CHORDS = 10
VISIBILITY_SECONDS = 3
WORKERS = ["one", "two"]
PROCESSES = 2
KILLS = 2
PROCESS_KILLS = 2

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": VISIBILITY_SECONDS},
    broker_connection_retry_on_startup=True,
    result_expires=600,
)
connection = redis.Redis.from_url(URL)
ledger = Ledger(connection)


@app.task
def square(number):
    """A little work."""
    ledger.note(number)
    return number * number


@app.task
def total(numbers):
    """The end of a chord."""
    return sum(numbers)


def work(name):
    """Becomes a worker."""
    words = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--without-mingle", "--without-gossip"]
    become([*words, "-c", str(PROCESSES), "-n", f"{name}-{os.getpid()}@here", "-l", "ERROR"], {"CELERY_JOBS": f"{PORT} {DATABASE}"})


def children(pid):
    """The processes of a worker's pool."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_process(workers):
    """Kills a process of any worker's pool; the worker starts another."""
    pid = workers.pids[workers.any()]
    until(lambda: children(pid), lambda: "a worker has no processes")
    os.kill(workers.chance.choice(children(pid)), signal.SIGKILL)


def stop(workers, name):
    """Tells a worker to stop; it ends the jobs it has."""
    os.kill(workers.pids[name], signal.SIGTERM)
    until(lambda: workers.ended(name), lambda: f"worker {name} does not stop")


def idle():
    """No job waits, and none is held."""
    return connection.llen("celery") == connection.hlen("unacked") == 0


def main():
    """Sends jobs, kills workers, and looks at the ledger and every result."""
    connection.flushdb()
    chance = random.Random(int(sys.argv[3]))
    with Fleet(work, WORKERS, chance) as workers:
        results = group(square.s(number) for number in range(JOBS))()
        for kill in range(PROCESS_KILLS):
            ledger.wait(chance.randrange(20, 50) + 50 * kill)
            kill_process(workers)
        workers.kill_some(ledger, JOBS, KILLS)
        time.sleep(VISIBILITY_SECONDS)
        workers.start("three")
        until(idle, lambda: f"{connection.llen('celery')} jobs wait, {connection.hlen('unacked')} are held")
        lost = [number for number, result in enumerate(results) if not result.ready()]
        assert len(lost) <= KILLS, f"lost: {lost}"
        for number in lost:
            square.apply_async((number,), task_id=results[number].id)
        # Asked for: of two results with one name, Celery tells but one when the job is done.
        until(lambda: all(results[number].ready() for number in lost), lambda: f"jobs {lost} are not done")
        values = [result.get(timeout=SECONDS_MAX) for result in results]
        assert values == [number * number for number in range(JOBS)]
        ledger.check(range(JOBS), (KILLS + PROCESS_KILLS + len(WORKERS)) * PROCESSES)
        doubled = ledger.doubled()
        chords = [chord((square.s(n) for n in range(5)), total.s())() for _ in range(CHORDS)]
        until(lambda: len(app.control.ping(timeout=0.5)) == len(workers.pids), lambda: "a worker does not answer")
        stop(workers, workers.any())
        assert [result.get(timeout=SECONDS_MAX) for result in chords] == [30] * CHORDS
    print(f"celery {celery.__version__}: {JOBS + 6 * CHORDS} jobs done, {doubled} again, {len(lost)} sent again")
    connection.flushdb()


if __name__ == "__main__":
    main()
