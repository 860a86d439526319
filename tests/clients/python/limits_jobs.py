#!/usr/bin/env python3
"""Asks the rate limiters of limits, which are scripts, for more than they give.

Several workers ask at once, and are killed at random. Each limiter lets through what it may, and no more; a killed
worker may have been let through and not have noted it.

    limits_jobs.py PORT DATABASE SEED
"""

import random
import signal
import sys

import limits
import redis

from fleet import Fleet, until

PORT, DATABASE, SEED = (int(word) for word in sys.argv[1:4])
WORKERS = ["one", "two", "three", "four"]
ASKED = 1_000
PASSED = 300
KILLS = 4
STRATEGIES = [
    limits.strategies.FixedWindowRateLimiter,
    limits.strategies.MovingWindowRateLimiter,
    limits.strategies.SlidingWindowCounterRateLimiter,
]

connection = redis.Redis(host="127.0.0.1", port=PORT, db=DATABASE)
item = limits.parse(f"{PASSED}/day")


def limiters():
    """The limiters, each over a storage of this process."""
    return [strategy(limits.storage.storage_from_string(f"redis://127.0.0.1:{PORT}/{DATABASE}")) for strategy in STRATEGIES]


def work(_name):
    """Asks every limiter, again and again."""
    mine = limiters()
    while connection.incr("asked") <= ASKED:
        for limiter in mine:
            name = type(limiter).__name__
            if limiter.hit(item, name):
                connection.hincrby("passed", name, 1)
    connection.incr("idle")
    signal.pause()


def asked():
    """How often each limiter was asked."""
    return int(connection.get("asked") or 0)


def main():
    """Asks, kills, and counts."""
    connection.flushdb()
    with Fleet(work, WORKERS, random.Random(SEED)) as workers:
        for moment in sorted(workers.chance.sample(range(20, PASSED), KILLS)):
            until(lambda moment=moment: asked() >= moment, lambda: f"asked {asked()} times")
            workers.replace(workers.any())
        until(lambda: int(connection.get("idle") or 0) == len(WORKERS), lambda: f"asked {asked()} times")
    for limiter in limiters():
        name = type(limiter).__name__
        passed = int(connection.hget("passed", name))
        assert PASSED - KILLS <= passed <= PASSED, f"{name} let {passed} through"
        assert limiter.get_window_stats(item, name).remaining == 0, f"{name} would let more through"
        assert not limiter.hit(item, name), f"{name} let one more through"
    print(f"limits: {ASKED} times asked, {len(STRATEGIES)} limiters, {KILLS} kills")
    connection.flushdb()


if __name__ == "__main__":
    main()
