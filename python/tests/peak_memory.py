"""The most memory that a process has held."""

import time


def peak_kib(process="self"):
    """Of one that has ended 0."""
    # Not ru_maxrss: a process begins with that of the one which started it.
    with open(f"/proc/{process}/status", encoding="ascii") as lines:
        return next((int(line.split()[1]) for line in lines
                     if line.startswith("VmHWM:")), 0)


def peak_kib_of(child):
    """Of a Popen, once it has ended. What it held in its last 10 ms alone may be
    missed."""
    peak = 0
    while True:
        # Before the wait, which takes its entry away.
        peak = max(peak, peak_kib(child.pid))
        if child.poll() is not None:
            return peak
        time.sleep(0.01)
