#!/usr/bin/env python3
"""Runs jobs through rq, a queue on lists, hashes, sorted sets, streams, publish and subscribe, WATCH and scripts.

Workers wait with BLMOVE or BLPOP and listen to a channel of their own for commands. Each result is written to a
stream, at which the producer waits with XREAD BLOCK. Jobs that depend on others are released by a transaction that
watches keys. Scripts enqueue jobs whose names must be new, and lock the scheduler of delayed jobs.

Workers and schedulers are killed at random. What a killed worker held is enqueued again by rq's own repair, which
runs after minutes: here, at once. A scheduler locks its queue for a minute: here, for less once it is killed.

    rq_jobs.py PORT DATABASE SEED
"""

import os
import random
import sys
import time
from datetime import timedelta

import redis
import rq.scheduler
from rq import Queue, Retry, SimpleWorker
from rq.command import send_shutdown_command
from rq.exceptions import DuplicateJobError
from rq.intermediate_queue import IntermediateQueue

import rq_work
from fleet import SECONDS_MAX, Fleet, Ledger, until

PORT, DATABASE, SEED = (int(word) for word in sys.argv[1:4])
JOBS = 1_000
CHAINS = 20
WORKERS = ["one", "two", "three"]
SCHEDULERS = ["scheduler-one", "scheduler-two"]
KILLS = 4
SCHEDULER_KILLS = 2
# Those delayed become ready within so many seconds.
DELAY_SECONDS_MAX = 4

connection = redis.Redis(host="127.0.0.1", port=PORT, db=DATABASE, socket_timeout=None)
queue = Queue("jobs", connection=connection)
ledger = Ledger(connection)
LOCK = rq.scheduler.RQScheduler.get_locking_key(queue.name)


def work(name):
    """A worker or a scheduler, until it is told to stop, or killed."""
    unique = f"{name}-{os.getpid()}"
    if name in WORKERS:
        SimpleWorker([queue], name=unique, connection=connection).work(logging_level="CRITICAL")
        return
    # Ten minutes, otherwise.
    rq.scheduler.DEFAULT_SCHEDULER_FALLBACK_PERIOD = 0.5
    rq.scheduler.RQScheduler([queue.name], connection, interval=1, name=unique, logging_level="CRITICAL").work()


def send(number, chance):
    """Enqueues a job, every fifth delayed."""
    how = {"job_id": f"job-{number}", "retry": Retry(max=10), "unique": True}
    if number % 5:
        return queue.enqueue(rq_work.square, number, **how)
    how.pop("unique")
    return queue.enqueue_in(timedelta(seconds=chance.uniform(0, DELAY_SECONDS_MAX)), rq_work.square, number, **how)


def is_refused(number, chance):
    """Whether a job whose name is taken is not enqueued."""
    try:
        send(number, chance)
    except DuplicateJobError:
        return True
    return False


def value(job):
    """What a job returned, once it has."""
    result = job.latest_result(timeout=SECONDS_MAX)
    assert result is not None, f"job {job.id} has no result"
    assert result.type == result.Type.SUCCESSFUL, f"job {job.id}: {result.exc_string}"
    return result.return_value


def kill_schedulers(schedulers):
    """Kills whoever has the lock, a few times; the other gets it."""
    for _ in range(SCHEDULER_KILLS):
        until(lambda: connection.get(LOCK), lambda: "no scheduler has the lock")
        time.sleep(schedulers.chance.uniform(0, 1))
        holder = connection.get(LOCK).decode()
        name = next(name for name in SCHEDULERS if holder == f"{name}-{schedulers.pids[name]}")
        schedulers.replace(name)
        connection.pexpire(LOCK, 100)
        until(lambda: connection.get(LOCK) not in (None, holder.encode()), lambda: "no scheduler took the lock over")


def repair():
    """What killed workers held goes back to the queue. None may be at work."""
    left = IntermediateQueue(queue.key, connection)
    for job in left.get_job_ids():
        connection.set(left.get_first_seen_key(job), time.time() - 3600)
    left.cleanup(SimpleWorker([queue], connection=connection), queue)
    queue.started_job_registry.cleanup(timestamp=int(time.time()) + 3600)


def stop(workers, name):
    """Tells a worker to stop through its channel."""
    unique = f"{name}-{workers.pids[name]}"

    def stopped():
        # Nobody hears it before the worker has subscribed.
        send_shutdown_command(connection, unique)
        return workers.ended(name)

    until(stopped, lambda: "a worker did not stop as told")


def main():
    """Enqueues jobs, kills workers, and looks at the ledger and every result."""
    connection.flushdb()
    chance = random.Random(SEED)
    with Fleet(work, WORKERS, chance) as workers, Fleet(work, SCHEDULERS, chance) as schedulers:
        jobs = [send(number, chance) for number in range(JOBS)]
        assert all(is_refused(number, chance) for number in range(1, JOBS, 50))
        kill_schedulers(schedulers)
        workers.kill_some(ledger, JOBS, KILLS)
        until(lambda: queue.count == queue.scheduled_job_registry.count == 0, lambda: f"{queue.count} jobs wait")
        for name in WORKERS:
            workers.kill(name)
    repair()
    with Fleet(work, WORKERS, chance) as workers:
        assert [value(job) for job in jobs] == [number * number for number in range(JOBS)]
        ledger.check(range(JOBS), KILLS + len(WORKERS))
        firsts, chains = [], []
        for number in range(CHAINS):
            firsts.append(queue.enqueue(rq_work.trace, number))
            chains.append(queue.enqueue(rq_work.trace, number, depends_on=firsts[-1]))
        failing = queue.enqueue(rq_work.fail)
        assert [value(job) for job in chains] == list(range(CHAINS))
        result = failing.latest_result(timeout=SECONDS_MAX)
        assert result.type == result.Type.FAILED and "on purpose" in result.exc_string
        # While it waits: a worker that is stopped right after it took a job leaves that to rq's own repair.
        stop(workers, WORKERS[0])
        later = [queue.enqueue(rq_work.trace, number) for number in range(CHAINS)]
        assert [value(job) for job in later] == list(range(CHAINS))
        # rq leaves a job there that a dependent was enqueued to at the moment when it ended.
        forgotten = {job.id for job in firsts}
        running = lambda: set(queue.started_job_registry.get_job_ids()) - forgotten
        until(lambda: not running(), lambda: f"{running()} do not end")
        assert (queue.count, queue.failed_job_registry.count) == (0, 1)
    print(f"rq: {JOBS + 3 * CHAINS + 1} jobs done, {ledger.doubled()} again after {KILLS} kills")
    connection.flushdb()


if __name__ == "__main__":
    main()
