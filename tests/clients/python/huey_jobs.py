#!/usr/bin/env python3
"""Runs jobs through huey, a queue on lists, BRPOP and hashes, whose scheduler is a script over a sorted set.

Consumers run with their schedulers, and are killed at random. huey has no acknowledgements: a job in the hands of a
killed worker is gone, and so are the scheduled jobs that a killed scheduler had popped and not yet enqueued. So
each job is done once at most, whoever races for it, until what has no result is enqueued again, as a user of huey
must. Periodic tasks are enqueued by one consumer, which is killed at last.

    huey_jobs.py PORT DATABASE SEED
"""

import random
import sys
import time

import redis
from huey import RedisHuey
from huey.consumer import Scheduler

from fleet import Fleet, Ledger, until

PORT, DATABASE, SEED = (int(word) for word in sys.argv[1:4])
JOBS = 1_000
THREADS = 2
CONSUMERS = ["periodic", "one", "two"]
KILLS = 4
# Those delayed become ready within so many seconds.
DELAY_SECONDS_MAX = 4

queue = RedisHuey("jobs", host="127.0.0.1", port=PORT, db=DATABASE)
connection = redis.Redis(host="127.0.0.1", port=PORT, db=DATABASE)
ledger = Ledger(connection)


@queue.task()
def square(number):
    """Does its job, and leaves a trace of having run."""
    time.sleep(number % 5 / 1000)
    ledger.note(number)
    return number * number


@queue.periodic_task(lambda _: True)
def tick():
    """Is enqueued by the scheduler again and again."""
    connection.incr("ticks")


def work(name):
    """A consumer with its scheduler, until it is killed."""
    # Once a minute, otherwise.
    Scheduler.periodic_task_seconds = 1
    queue.create_consumer(workers=THREADS, periodic=name == "periodic", scheduler_interval=1).run()


def send(numbers, chance):
    """Enqueues jobs: every third is delayed."""
    return {
        number: square(number) if number % 3 else square.schedule((number,), delay=chance.uniform(0, DELAY_SECONDS_MAX))
        for number in numbers
    }


def idle():
    """No job waits, and none was done for a moment."""
    done = ledger.count()
    time.sleep(0.3)
    return queue.pending_count() == queue.scheduled_count() == 0 and ledger.count() == done


def main():
    """Enqueues jobs, kills consumers, and looks at the ledger and the results."""
    connection.flushdb()
    chance = random.Random(SEED)
    with Fleet(work, CONSUMERS, chance) as consumers:
        jobs = send(range(JOBS), chance)
        consumers.kill_some(ledger, JOBS // 2, KILLS)
        until(idle, lambda: f"{ledger.count()} done, {queue.pending_count()} and {queue.scheduled_count()} left")
        assert ledger.doubled() == 0, f"{ledger.doubled()} jobs were done twice"
        lost = ledger.missing(range(JOBS))
        immediate = [number for number in lost if number % 3]
        assert len(immediate) <= KILLS * THREADS, f"{len(immediate)} jobs are gone"
        # A worker killed after its work left no result.
        unheard = [number for number, job in jobs.items() if not connection.hexists(queue.storage.result_key, job.id)]
        assert len(set(unheard) - set(lost)) <= KILLS * THREADS, f"{len(unheard)} jobs have no result"
        jobs |= {number: square(number) for number in unheard}
        ledger.wait(JOBS)
        results = {number: job.get(blocking=True, timeout=20) for number, job in jobs.items()}
        assert results == {number: number * number for number in range(JOBS)}
        ledger.check(range(JOBS), KILLS * THREADS)
        before = int(connection.get("ticks"))
        until(lambda: int(connection.get("ticks")) > before, lambda: "no tick of a periodic task")
    print(f"huey: {JOBS} jobs done, {len(unheard)} of them enqueued again after {KILLS} kills")
    connection.flushdb()


if __name__ == "__main__":
    main()
