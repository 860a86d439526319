"""What the programs of this folder share: workers that are killed at random, and a ledger of the jobs done.

All chances are drawn from the seed on the command line: when a worker is killed, which one, how long a job waits.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback

# For one of a program's waits: many times what it takes.
SECONDS_MAX = 120


def until(condition, what):
    """Waits for a condition."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} seconds: {what()}"
        time.sleep(0.01)


class Ledger:
    """How often each job was done, in a hash on the server."""

    def __init__(self, connection):
        self.connection = connection

    def note(self, job):
        """To be called by a job."""
        self.connection.hincrby("ledger", job, 1)

    def count(self):
        """How many jobs were done."""
        return self.connection.hlen("ledger")

    def wait(self, count):
        """Waits until that many jobs were done."""
        until(lambda: self.count() >= count, lambda: f"{self.count()} of {count} jobs were done")

    def missing(self, jobs):
        """Which of `jobs` were not done."""
        done = {int(job) for job in self.connection.hkeys("ledger")}
        return [job for job in jobs if job not in done]

    def doubled(self):
        """How often jobs were done once more."""
        return sum(int(count) - 1 for count in self.connection.hvals("ledger"))

    def check(self, jobs, doubled_max):
        """Every job was done, and at most `doubled_max` times one was done again."""
        assert not self.missing(jobs), f"lost: {self.missing(jobs)}"
        assert self.count() == len(jobs), f"{self.count()} jobs were done, of {len(jobs)}"
        assert self.doubled() <= doubled_max, f"{self.doubled()} jobs were done again, of {doubled_max} at most"


class Fleet:
    """Workers, each in a group of processes that is killed as a whole."""

    def __init__(self, work, names, chance):
        """`work` is called in a new process with the worker's name."""
        self.work, self.chance, self.kills, self.pids = work, chance, 0, {}
        for name in names:
            self.start(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in list(self.pids):
            self.kill(name)

    def start(self, name):
        """Starts the worker of that name."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            with contextlib.suppress(PermissionError):  # The worker has done it and is another program by now.
                os.setpgid(pid, pid)
            self.pids[name] = pid
            return
        try:
            os.setpgid(0, 0)
            end_with_parent()
            self.work(name)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def ended(self, name):
        """Whether a worker ended by itself, and well."""
        pid, status = os.waitpid(self.pids[name], os.WNOHANG)
        if pid:
            del self.pids[name]
            assert status == 0, f"worker {name} ended with {status}"
        return bool(pid)

    def kill(self, name):
        """Ends a worker and its children in the middle of their work."""
        pid = self.pids.pop(name)
        os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert status == signal.SIGKILL, f"worker {name} had ended with {status}"
        self.kills += 1

    def replace(self, name):
        """Kills a worker and starts another."""
        self.kill(name)
        self.start(name)

    def any(self):
        """The name of any worker."""
        return self.chance.choice(sorted(self.pids))

    def kill_some(self, ledger, jobs, kills):
        """Replaces any worker `kills` times while `jobs` jobs are done, at moments drawn by chance."""
        for moment in sorted(self.chance.sample(range(jobs // 10, jobs * 8 // 10), kills)):
            ledger.wait(moment)
            self.replace(self.any())


def end_with_parent():
    """Lets the kernel kill this process when the one that started it ends."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def become(words, environment):
    """Turns this process into another program, which keeps quiet, in this folder."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    os.execve(words[0], words, os.environ | environment)
