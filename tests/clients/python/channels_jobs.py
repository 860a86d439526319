#!/usr/bin/env python3
"""Sends messages through the default layer of channels_redis: sorted sets, BZPOPMIN, and scripts, for groups too.

Each worker waits at a channel of its own, to which messages are sent, and is in a group, to which messages are sent
as well. Workers are killed at random, and others go on at their channels. channels_redis delivers a message once at
most, and keeps the one in a worker's hands for the next: of a killed worker, one message may be lost, or come twice.

    channels_jobs.py PORT DATABASE SEED
"""

import asyncio
import random
import sys

import redis
from channels.exceptions import ChannelFull
from channels_redis.core import RedisChannelLayer

from fleet import Fleet, Ledger, until

PORT, DATABASE, SEED = (int(word) for word in sys.argv[1:4])
WORKERS = ["worker.0", "worker.1", "worker.2", "worker.3"]
# Messages to one channel, and to the group, where each has a receiver of every worker.
SENT = 600
SENT_TO_GROUP = 100
JOBS = SENT + SENT_TO_GROUP * len(WORKERS)
KILLS = 6

connection = redis.Redis(host="127.0.0.1", port=PORT, db=DATABASE)
ledger = Ledger(connection)


def layer(capacity):
    """A layer of this process."""
    made = RedisChannelLayer(hosts=[f"redis://127.0.0.1:{PORT}/{DATABASE}"], capacity=capacity)
    # Below the five seconds after which redis-py gives up, and loses what came at that moment.
    made.brpop_timeout = 1
    return made


def work(name):
    """Receives messages until it is killed."""

    async def receive():
        mine = layer(JOBS)
        while True:
            message = await mine.receive(name)
            ledger.note(message["job"] + message.get("of_each", 0) * WORKERS.index(name))

    asyncio.run(receive())


async def send(chance):
    """Sends all messages, in any order."""
    mine = layer(JOBS)
    for name in WORKERS:
        await mine.group_add("all", name)
    messages = [{"job": job} for job in range(SENT)]
    messages += [{"job": SENT + job, "of_each": SENT_TO_GROUP} for job in range(SENT_TO_GROUP)]
    for message in chance.sample(messages, len(messages)):
        if "of_each" in message:
            await mine.group_send("all", message)
        else:
            await mine.send(chance.choice(WORKERS), message)


async def send_again(jobs):
    """Sends each of `jobs` to any worker."""
    mine = layer(JOBS)
    for job in jobs:
        await mine.send(WORKERS[0], {"job": job})


async def fill():
    """A channel takes as many messages as it has room for."""
    mine = layer(3)
    await mine.group_add("small", "full")
    for number in range(3):
        await mine.send("full", {"job": number})
    try:
        await mine.send("full", {"job": 3})
    except ChannelFull:
        await mine.group_send("small", {"job": 4})
        received = [(await mine.receive("full"))["job"] for _ in range(3)]
        assert received == [0, 1, 2], f"received {received}"
        return
    raise AssertionError("a full channel took one more")


def idle():
    """No message waits, and none is in a worker's hands."""
    return not any(connection.zcard(f"asgi{name}{suffix}") for name in WORKERS for suffix in ("", "$inflight"))


def main():
    """Sends messages, kills workers, and looks at the ledger."""
    connection.flushdb()
    asyncio.run(fill())
    chance = random.Random(SEED)
    with Fleet(work, WORKERS, chance) as workers:
        # As a program beside this one, which kills meanwhile.
        sender = Fleet(lambda _: asyncio.run(send(chance)), ["sender"], chance)
        workers.kill_some(ledger, JOBS, KILLS)
        until(lambda: sender.ended("sender"), lambda: "the sender does not end")
        until(idle, lambda: "messages wait")
        until(lambda: idle() and ledger.count() >= JOBS - KILLS, lambda: f"{ledger.count()} of {JOBS} jobs were done")
        lost = ledger.missing(range(JOBS))
        assert len(lost) <= KILLS, f"lost: {lost}"
        asyncio.run(send_again(lost))
        ledger.wait(JOBS)
        ledger.check(range(JOBS), KILLS)
    print(f"channels_redis: {JOBS} messages received, {ledger.doubled()} again, {len(lost)} sent again")
    connection.flushdb()


if __name__ == "__main__":
    main()
