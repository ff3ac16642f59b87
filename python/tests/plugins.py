"""Finds installed plugins in the same Python as the package does: the one that
TESSERA_PYTHON names, else this one."""

import functools
import os
import subprocess
import sys

import pytest

# For each plugin: its module, and the name of its pip package.
KNOWN = {"xla_cpu_pjrt": ("xla_plugins", "xla-cpu-pjrt"),
         "lammps_jax_pjrt_cpu": ("lammps_jax_pjrt_cpu", "lammps-jax-pjrt-cpu")}
SCRIPT = ("import importlib.util, sys\n"
          "sys.exit(importlib.util.find_spec(sys.argv[1]) is None)")


@functools.cache
def is_there(name, python=None):
    """Whether a plugin is installed. A file named by the plugin's own variable
    counts too, unless `python` names an interpreter."""
    if python is None and os.environ.get(f"TESSERA_PJRT_{name.upper()}"):
        return True
    python = python or os.environ.get("TESSERA_PYTHON") or sys.executable
    try:
        return subprocess.run([python, "-c", SCRIPT, KNOWN[name][0]],
                              capture_output=True).returncode == 0
    except OSError:  # no such interpreter
        return False


def called(name):
    return f"the plugin of {KNOWN[name][1]}"


def needs(name, python=None):
    """Marks a test that is skipped without the plugin."""
    return pytest.mark.skipif(not is_there(name, python),
                              reason=f"{called(name)} is not installed")
