"""Facts of this machine, timing, and storing results, for the scripts that
measure. Needs the standard library only."""

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
    """CPU seconds that the whole machine has spent, and our own part of
    them."""
    with open("/proc/stat", encoding="utf-8") as lines:
        ticks = [int(n) for n in lines.readline().split()[1:9]]
    # user, nice, system, irq, softirq; user includes guests already.
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
    """CPU seconds of this process's threads and of its ended child
    processes."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def facts():
    return {"cpu": cpu_model(), "cores": os.cpu_count()}


def place(result, folder):
    """The path of a result in the folder of this machine's results."""
    return pathlib.Path(folder) / slug(result["cpu"]) / f"{result['bench']}.json"


def keep(result, out):
    """Writes the result to `out` and returns that path."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(out.name + f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    aside.rename(out)
    return out


def add_keep_flags(add):
    """Adds the flags that name where a script stores its result."""
    add("--results", type=pathlib.Path, metavar="FOLDER",
        help="keep it there, in a folder of this CPU")
    add("-o", "--out", type=pathlib.Path, metavar="FILE.json", help="or there")


def keep_where_asked(result, flags):
    out = flags.out or (flags.results and place(result, flags.results))
    if out:
        print(keep(result, out))


def warm_up(runs):
    """Runs each once. Returns the results by name, and the errors of those that
    fail."""
    given, failed = {}, {}
    for name, run in runs.items():
        try:
            given[name] = run()
        except Exception as e:  # any error of a peer
            failed[name] = f"{type(e).__name__}: {e}".splitlines()[0]
    return given, failed


def best_of(runs, rounds, given=None):
    """The best of several rounds of each run. The runs take turns, so that a
    machine that slows down slows all of them. A first round warms up, unless
    `given` has its results. Each name gets CPU seconds (of all threads and
    ended child processes), seconds by the clock, and the result of the run."""
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
