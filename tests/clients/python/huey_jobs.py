#!/usr/bin/env python3
"""Runs a thousand jobs through huey, a queue on lists, BRPOP and hashes, with workers that are killed.

Three worker processes take jobs; once a few hundred are done all of them are killed (SIGKILL) and three new
ones go on. huey has no acknowledgements, so a job in the hands of a killed worker is gone: the producer
enqueues again what has no result in the end, as a user of huey must. At most one job per killed worker may
be lost that way, every job must have its result at last, and a job counts itself in a set of its own, so that
one which ran without leaving a result shows too.

Workers call huey's own `dequeue` and `execute`; its consumer's scheduler is left out, because it wants EVAL.

    huey_jobs.py PORT        (workers are started with a further word, "work")
"""

import subprocess
import sys
import time

from huey import RedisHuey

JOBS = 1_000
WORKERS = 3
# Done before the first workers are killed.
KILL_AFTER = 300
# For all jobs.
SECONDS_MAX = 60

queue = RedisHuey("jobs", host="127.0.0.1", port=int(sys.argv[1]), db=9)
redis = queue.storage.conn


@queue.task()
def square(number):
    """Does its job, and leaves a trace of having run."""
    redis.sadd("ran", number)
    return number * number


def work():
    """Takes jobs until it is killed."""
    while True:
        task = queue.dequeue()
        if task is not None:
            queue.execute(task)


def start_workers():
    """New workers, as processes of their own."""
    return [subprocess.Popen([sys.executable, *sys.argv[:2], "work"]) for _ in range(WORKERS)]


def kill(workers):
    """Ends workers in the midst of their work."""
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.wait()


def until(condition, deadline):
    """Waits for a condition."""
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"too slow: {queue.result_count()} results, {queue.pending_count()} jobs left")
        time.sleep(0.002)


def main():
    """Produces, kills, and looks at the results."""
    deadline = time.monotonic() + SECONDS_MAX
    redis.flushdb()
    jobs = {number: square(number) for number in range(JOBS)}
    workers = start_workers()
    try:
        until(lambda: queue.result_count() >= KILL_AFTER, deadline)
        kill(workers)
        done = queue.result_count()
        workers = start_workers()
        until(lambda: queue.pending_count() == 0, deadline)
        # The last jobs are still in the workers' hands; those of the killed workers never come.
        until(lambda: queue.result_count() >= JOBS - WORKERS, deadline)
        settled = time.monotonic() + 1
        until(lambda: queue.result_count() == JOBS or time.monotonic() > settled, deadline)
        missing = [number for number, job in jobs.items() if not redis.hexists(queue.storage.result_key, job.id)]
        for number in missing:
            jobs[number] = square(number)
        until(lambda: queue.result_count() >= JOBS, deadline)
    finally:
        kill(workers)
    for number, job in jobs.items():
        result = job.get()
        if result != number * number:
            raise AssertionError(f"job {number} gave {result}")
    if redis.scard("ran") != JOBS:
        raise AssertionError(f"{redis.scard('ran')} of {JOBS} jobs ran")
    redis.flushdb()
    print(f"huey: {JOBS} jobs done, workers killed after {done}, {len(missing)} jobs enqueued again")


if __name__ == "__main__":
    work() if sys.argv[2:] == ["work"] else main()
