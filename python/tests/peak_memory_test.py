"""The peak memory of a process does not include that of other processes."""

import subprocess
import sys

from peak_memory import peak_kib, peak_kib_of

MIB = 1024
HOLDS = "import time; x = bytearray(b'x') * (64 << 20); time.sleep(0.5)"


def start(code):
    return subprocess.Popen([sys.executable, "-S", "-c", code])


def test_of_a_child_that_a_large_process_started():
    held = bytearray(b"x") * (300 << 20)
    assert peak_kib() > 300 * MIB
    child = start(HOLDS)
    assert 64 * MIB < peak_kib_of(child) < 200 * MIB
    assert child.returncode == 0 and len(held) == 300 << 20


def test_of_a_child_that_fails():
    child = start("raise SystemExit(3)")
    peak_kib_of(child)
    assert child.returncode == 3
