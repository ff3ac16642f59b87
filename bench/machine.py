"""What the scripts of measurements say of this machine, and where they keep what
they found. Needs the standard library only."""

import json
import os
import pathlib
import platform
import re
import resource
import time


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def slug(text):
    text = re.sub(r"\((r|tm)\)", "", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def busy_seconds():
    """CPU time the whole machine has spent, and our own part of it."""
    with open("/proc/stat", encoding="utf-8") as lines:
        ticks = [int(n) for n in lines.readline().split()[1:9]]
    # user, nice, system, irq, softirq; guests are counted in user already.
    machine = sum(ticks[i] for i in (0, 1, 2, 5, 6))
    ours = os.times()
    return machine / os.sysconf("SC_CLK_TCK"), sum(ours[:4])


class Others:
    """Cores that other processes kept busy while the block ran."""

    def __enter__(self):
        self.start = (time.perf_counter(), *busy_seconds())
        return self

    def __exit__(self, *_):
        wall, machine, ours = (
            now - then
            for now, then in zip(
                (time.perf_counter(), *busy_seconds()), self.start
            )
        )
        self.cores = round(max(0.0, machine - ours) / max(wall, 1e-3), 2)


def process_seconds():
    """Of this process's threads, and of its processes that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def facts():
    return {"cpu": cpu_model(), "cores": os.cpu_count()}


def place(result, folder):
    """Of a bench among the results of this machine."""
    return pathlib.Path(folder) / slug(result["cpu"]) / f"{result['bench']}.json"


def keep(result, out):
    """Writes it there; where that is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(out.name + f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    aside.rename(out)
    return out


def add_keep_flags(add):
    """Where a script that prints what it finds keeps it too."""
    add("--results", type=pathlib.Path, metavar="FOLDER",
        help="keep it there, in a folder of this CPU")
    add("-o", "--out", type=pathlib.Path, metavar="FILE.json", help="or there")


def keep_where_asked(result, flags):
    out = flags.out or (flags.results and place(result, flags.results))
    if out:
        print(keep(result, out))


def warm_up(runs):
    """Each once: what it gave, and why those that cannot run cannot."""
    given, failed = {}, {}
    for name, run in runs.items():
        try:
            given[name] = run()
        except Exception as e:  # a peer's own
            failed[name] = f"{type(e).__name__}: {e}".splitlines()[0]
    return given, failed


def best_of(runs, rounds, given=None):
    """The best of several rounds of every run, in turns, so that a machine that
    slows down slows all of them; one round before warms up, unless `given` has
    what it gave. For each name its seconds by the processor, of all threads and
    of processes that ended, its seconds by the clock, and what the run gave."""
    if given is None:
        given = {name: run() for name, run in runs.items()}
    taken = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            used, clock = process_seconds(), time.perf_counter()
            given[name] = run()
            clock = time.perf_counter() - clock
            taken[name].append((process_seconds() - used, clock))
    return {name: {"seconds": min(used for used, _ in taken[name]),
                   "clock_seconds": min(clock for _, clock in taken[name]),
                   "gave": given[name]} for name in runs}
