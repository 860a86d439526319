#!/usr/bin/env python3
"""Runs jobs through rq, a queue on lists, hashes, sorted sets, streams, publish and subscribe and WATCH.

Three workers, as processes of their own, take jobs (they wait with BLMOVE or BLPOP and listen to a channel of
their own for commands). Each result is written to a stream, which the producer waits at with XREAD BLOCK. Jobs
that depend on others are released by a transaction that watches keys. One worker is told to stop through its
channel, the others go on.

    rq_jobs.py PORT        (workers are started with a further word, their name)
"""

import subprocess
import sys
import time

import redis
from rq import Queue, SimpleWorker
from rq.command import send_shutdown_command

import rq_work

JOBS = 300
CHAINS = 20
WORKERS = ["one", "two", "three"]
# For one result.
SECONDS_MAX = 60

connection = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]), db=9)
queue = Queue("jobs", connection=connection)


def work(name):
    """Takes jobs until it is told to stop."""
    SimpleWorker([queue], name=name, connection=connection).work(logging_level="WARNING")


def value(job):
    """What a job returned, once it has."""
    result = job.latest_result(timeout=SECONDS_MAX)
    assert result is not None, f"job {job.id} has no result"
    assert result.type == result.Type.SUCCESSFUL, f"job {job.id}: {result.exc_string}"
    return result.return_value


def main():
    """Enqueues jobs and checks every result."""
    connection.flushdb()
    workers = [subprocess.Popen([sys.executable, *sys.argv[:2], name]) for name in WORKERS]
    try:
        jobs = [queue.enqueue(rq_work.square, n) for n in range(JOBS)]
        chains = []
        for n in range(CHAINS):
            first = queue.enqueue(rq_work.square, n)
            chains.append(queue.enqueue(rq_work.trace, n, depends_on=first))
        failing = queue.enqueue(rq_work.fail)
        assert [value(job) for job in jobs] == [n * n for n in range(JOBS)]
        assert [value(job) for job in chains] == list(range(CHAINS))
        result = failing.latest_result(timeout=SECONDS_MAX)
        assert result.type == result.Type.FAILED and "on purpose" in result.exc_string
        # While it waits: a worker that is stopped right after it took a job leaves that to rq's own repair.
        deadline = time.time() + SECONDS_MAX
        while workers[0].poll() is None and time.time() < deadline:
            # Nobody hears it before the worker has subscribed.
            send_shutdown_command(connection, WORKERS[0])
            time.sleep(0.01)
        assert workers[0].returncode is not None, "a worker did not stop as told"
        later = [queue.enqueue(rq_work.square, n) for n in range(CHAINS)]
        assert [value(job) for job in later] == [n * n for n in range(CHAINS)]
        deadline = time.time() + SECONDS_MAX
        while queue.started_job_registry.count and time.time() < deadline:
            time.sleep(0.01)
        assert (queue.count, queue.started_job_registry.count, queue.failed_job_registry.count) == (0, 0, 1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    connection.flushdb()
    print(f"rq: {JOBS + 3 * CHAINS + 1} jobs done")


if __name__ == "__main__":
    work(sys.argv[2]) if len(sys.argv) > 2 else main()
