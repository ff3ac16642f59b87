"""Which plugins are there: asked of the Python that the package asks, which
TESSERA_PYTHON names, else of this one."""

import functools
import os
import subprocess
import sys

import pytest

# Of each plugin: the module that has it, and what pip calls that.
KNOWN = {"xla_cpu_pjrt": ("xla_plugins", "xla-cpu-pjrt"),
         "lammps_jax_pjrt_cpu": ("lammps_jax_pjrt_cpu", "lammps-jax-pjrt-cpu")}
SCRIPT = ("import importlib.util, sys\n"
          "sys.exit(importlib.util.find_spec(sys.argv[1]) is None)")


@functools.cache
def is_there(name, python=None):
    """A file named in the plugin's own variable counts, unless `python` says
    whose packages are meant."""
    if python is None and os.environ.get(f"TESSERA_PJRT_{name.upper()}"):
        return True
    python = python or os.environ.get("TESSERA_PYTHON") or sys.executable
    try:
        return subprocess.run([python, "-c", SCRIPT, KNOWN[name][0]],
                              capture_output=True).returncode == 0
    except OSError:  # there is no such Python
        return False


def called(name):
    return f"the plugin of {KNOWN[name][1]}"


def needs(name, python=None):
    """Marks a test that is skipped without the plugin."""
    return pytest.mark.skipif(not is_there(name, python),
                              reason=f"{called(name)} is not installed")
