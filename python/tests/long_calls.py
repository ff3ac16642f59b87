"""A child process that makes one long call and is sent Ctrl-C."""

import signal
import subprocess
import sys
import time

ENDED, WENT_ON = 42, 43


def interrupted(prepare, call, item, then="pass"):
    """What a child does that runs map(call, [item]) and is interrupted: ENDED
    where the call itself ended, WENT_ON where it gave its result first. `then`
    is what it goes on with."""
    # A shell's background jobs ignore Ctrl-C, and so would their children. What a
    # call gives is kept before Python looks for signals by itself.
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
