"""What the jobs of rq_jobs.py do: workers find it by its name."""


def square(number):
    """A little work."""
    return number * number


def trace(number):
    """Runs when the job that it depends on is done."""
    return number


def fail():
    """A job that fails."""
    raise RuntimeError("on purpose")
