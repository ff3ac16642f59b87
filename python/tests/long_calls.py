"""A child process that makes one long call and is sent Ctrl-C."""

import signal
import subprocess
import sys
import time

ENDED, WENT_ON = 42, 43


def interrupted(prepare, call, item, then="pass"):
    """Runs map(call, [item]) in a child process and interrupts it. Returns
    ENDED if the call itself was interrupted, WENT_ON if it returned its result
    first. The child then runs the code `then`."""
    # A shell's background jobs and their children ignore Ctrl-C by default. The
    # call's result is stored before Python checks for signals itself.
    code = prepare + f"""
import functools, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
kept, call, item = [], {call}, {item}
print("begin", flush=True)
try:
    kept.extend(map(call, [item]))
except KeyboardInterrupt:
    {then}
    sys.exit({WENT_ON} if kept else {ENDED})
"""
    child = subprocess.Popen([sys.executable, "-c", code],
                             stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"begin\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    return child.wait(timeout=120)
