"""The example of docs/python.md runs, and its losses are the dense ones."""

import os
import subprocess
import sys

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "examples",
                       "python", "train_packed_jax.py")


def test_training_is_equal_to_dense():
    ran = subprocess.run(
        [sys.executable, EXAMPLE, "--length", "256", "--steps", "6"],
        capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "; 1 compile;" in ran.stdout
