"""Runs an example of docs/python.md, and compares its losses to the dense
ones."""

import os
import subprocess
import sys

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "examples",
                      "python")


def check_training_is_equal_to_dense(example):
    ran = subprocess.run(
        [sys.executable, os.path.join(FOLDER, example), "--length", "256",
         "--steps", "6"],
        capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "; 1 compile;" in ran.stdout
