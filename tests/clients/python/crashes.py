"""What programs share whose server is killed: a ledger in a file, and jobs that are sent until the server takes them."""

import os
import time


def now_ms():
    """The time in milliseconds."""
    return time.time_ns() // 1_000_000


def note(ledger, job, sent_ms):
    """Appends a line to the ledger: one write, so lines of several processes do not mix."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{job} {sent_ms} {now_ms()}\n".encode())
    os.close(file)


def send_all(jobs, send, errors):
    """Sends each job until the server takes it: one that it took without an answer is sent again."""
    for job in range(jobs):
        sent_ms = now_ms()
        while True:
            try:
                send(job, sent_ms)
                break
            except errors:
                time.sleep(0.02)
