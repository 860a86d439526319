#!/usr/bin/env python3
"""Jobs in a list, as many write them with redis-py: BRPOPLPUSH to a list of the worker's own, LREM when it is done.

Workers and server are killed; see crashes.rs of xtask. A worker that starts, or lost its connection, puts what is in
the lists of workers that run no more, and in its own, back: none is lost.

    list_crashes.py send PORT LEDGER JOBS
    list_crashes.py work PORT LEDGER
"""

import os
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crashes import note, send_all

LEDGER = sys.argv[3]
# No request is sent again behind the program's back.
connection = redis.Redis(port=int(sys.argv[2]), retry=Retry(NoBackoff(), 0), decode_responses=True)
own = f"held:{os.getpid()}"


def put_back():
    """Puts back what dead workers held, and what this one did not get an answer for."""
    for held in connection.keys("held:*"):
        if held == own or not os.path.exists(f"/proc/{held.removeprefix('held:')}"):
            while connection.rpoplpush(held, "jobs"):
                pass


def work():
    """Does one job."""
    text = connection.brpoplpush("jobs", own, timeout=1)
    if text is None:
        # Workers that were killed meanwhile are noticed here.
        put_back()
        return
    job, sent_ms = map(int, text.split())
    time.sleep(job % 5 / 1000)
    note(LEDGER, job, sent_ms)
    connection.lrem(own, 1, text)


def main():
    """Sends jobs, or does them until it is killed."""
    if sys.argv[1] == "send":
        send_all(int(sys.argv[4]), lambda job, sent_ms: connection.lpush("jobs", f"{job} {sent_ms}"), redis.RedisError)
        return
    is_clean = False
    while True:
        try:
            if not is_clean:
                put_back()
            is_clean = True
            work()
        except redis.RedisError:
            is_clean = False
            time.sleep(0.02)


if __name__ == "__main__":
    main()
