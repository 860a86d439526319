#!/usr/bin/env python3
"""Jobs of Celery whose workers and server are killed; see crashes.rs of xtask.

Acknowledgements are late: a job that a killed worker held comes back after the visibility timeout. Celery's transport
pops a message and then notes that it did: one may be lost where the worker or the server is killed between the two.

    celery_crashes.py send PORT LEDGER JOBS
    celery_crashes.py work PORT LEDGER
"""

import os
import sys
import time

import kombu.exceptions
import redis.exceptions
from celery import Celery

from crashes import note, send_all

PORT, LEDGER = os.environ.get("CRASHES", " ".join(sys.argv[2:4])).split(" ", 1)
PROCESSES = 2

app = Celery("celery_crashes", broker=f"redis://127.0.0.1:{PORT}/0")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_publish_retry=False,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_transport_options={"visibility_timeout": 3},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
)


@app.task
def work(job, sent_ms):
    """A little work."""
    time.sleep(job % 5 / 1000)
    note(LEDGER, job, sent_ms)


def main():
    """Sends jobs, or becomes a worker by Celery's own command line, which imports this file."""
    if sys.argv[1] == "send":
        errors = (kombu.exceptions.OperationalError, redis.exceptions.RedisError, OSError)
        send_all(int(sys.argv[4]), lambda job, sent_ms: work.apply_async((job, sent_ms)), errors)
        return
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    words = [sys.executable, "-m", "celery", "-A", "celery_crashes", "worker", "--without-mingle", "--without-gossip"]
    words += ["-c", str(PROCESSES), "-n", f"{os.getpid()}@here", "-l", "WARNING"]
    os.execve(words[0], words, os.environ | {"CRASHES": f"{PORT} {LEDGER}"})


if __name__ == "__main__":
    main()
