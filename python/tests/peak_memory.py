"""The peak memory of a process."""

import time


def peak_kib(process="self"):
    """Peak memory in KiB; 0 for a process that has ended."""
    # Not ru_maxrss, which a process inherits from the one that started it.
    with open(f"/proc/{process}/status", encoding="ascii") as lines:
        return next((int(line.split()[1]) for line in lines
                     if line.startswith("VmHWM:")), 0)


def peak_kib_of(child):
    """Waits for a Popen to end and returns its peak memory in KiB. A peak in
    its last 10 ms may be missed."""
    peak = 0
    while True:
        # Read before poll(), which removes the process's entry.
        peak = max(peak, peak_kib(child.pid))
        if child.poll() is not None:
            return peak
        time.sleep(0.01)
