"""The most memory that this process has held."""


def peak_kib():
    # Not ru_maxrss: a process begins with that of the one which started it.
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines
                    if line.startswith("VmHWM:"))
