"""The examples over several processes: two processes of two devices each, over
loopback, train as one process of four devices does. If one is killed, the other
ends with an error."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from bound import U

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
# One example divides rows over processes, the other the tokens of one row.
both = pytest.mark.parametrize("example", ["train_many_hosts", "train_long_row"])


def start(example, *arguments):
    return subprocess.Popen([sys.executable, str(EXAMPLES / f"{example}.py"),
                             *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=dict(os.environ, JAX_PLATFORMS="cpu"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pair(example, *of_second, out=None):
    """Starts both processes."""
    where = ("--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2")
    more = ("--out", str(out)) if out else ()
    return (start(example, "--process", "0", *where, *more),
            start(example, "--process", "1", *where, *of_second))


def finish(process, seconds=120):
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        process.kill()


@both
def test_two_processes_train_as_one(example, tmp_path):
    together = pair(example, out=tmp_path / "two.npz")
    for process in together:
        text = finish(process)
        assert process.returncode == 0, text
    alone = start(example, "--devices", "4", "--out", str(tmp_path / "one.npz"))
    text = finish(alone)
    assert alone.returncode == 0, text
    assert "compiles: 1" in text

    two, one = (np.load(tmp_path / f"{n}.npz") for n in ("two", "one"))
    # A loss is the sum of four devices' losses, all >= 0, in any order: three
    # roundings in each of the two losses.
    off = np.abs(two["losses"] - one["losses"])
    assert (off <= 6 * U * one["losses"]).all(), off
    assert one["losses"][-1] < one["losses"][0]
    for name in "qkvo":
        # Gradients are sums of two terms, whose order does not matter.
        np.testing.assert_array_equal(two[name], one[name])


@both
def test_a_process_that_is_killed_ends_the_other(example):
    first, second = pair(example, "--die-before", "2")
    begun = time.monotonic()
    text = finish(first, 90)
    finish(second)
    assert second.returncode == -9
    assert first.returncode != 0, text
    assert "step 1" in text and "step 2" not in text
    assert time.monotonic() - begun < 90
