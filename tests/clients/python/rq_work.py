"""What the jobs of rq_jobs.py do: workers find it by its name."""

import time

import rq

from fleet import Ledger


def square(number):
    """A little work, that is noted."""
    time.sleep(number % 5 / 1000)
    Ledger(rq.get_current_job().connection).note(number)
    return number * number


def trace(number):
    """Runs when the job that it depends on is done."""
    return number


def fail():
    """A job that fails."""
    raise RuntimeError("on purpose")
