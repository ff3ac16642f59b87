"""Tests an installed wheel in an environment without a compiler: its files, a batch
that is planned and run, the program, each ISA's kernels, and the handlers that JAX
calls."""

import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import tessera as ts

for name in ("cc", "gcc", "c++", "clang", "cmake", "ninja"):
    assert shutil.which(name) is None, f"there is a compiler: {name}"

batch = ts.plan(ts.causal & ts.documents, q_len=4,
                doc_ids=np.array([0, 0, 1, 1], np.int32))
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4, 8), np.float32)
out = ts.attention(q, k, v, batch)
# The first token of a document attends only to itself, the second to both.
assert (out[:, :, ::2] == v[:, :, ::2]).all()
assert (out[:, :, 1::2] != v[:, :, 1::2]).all()

assert len(ts._core._jax_handlers()) == 3

folder = pathlib.Path(ts.__file__).parent
assert (folder / "py.typed").is_file()
stubs = (folder / "_core.pyi").read_text(encoding="utf-8")
for name in dir(ts._core):
    assert name.startswith("_") or re.search(
        rf"^(def|class) {name}\b|^{name}:", stubs, re.M), f"no stub of {name}"


def run(*words):
    return subprocess.run([sys.executable, "-m", "tessera", *words],
                          capture_output=True, text=True)


# Each ISA of this machine must run. For another ISA the error must say that the
# machine lacks it, not that the wheel does.
here = json.loads(run("doctor", "--json").stdout)["isas"]
for isa in ("portable", "avx2", "avx512", "avx512bf16", "amx"):
    done = run("run", "--mask", "causal", "--q-len", "64", "--heads", "2",
               "--head-dim", "64", "--dtype", "bf16", "--lane", "cpu", "--isa",
               isa, "--backward", "--check", "--json")
    lacks = f"found {isa} for a machine with {' '.join(here)}"
    if isa in here:
        assert done.returncode == 0, done.stderr
        receipt = json.loads(done.stdout)
        assert receipt["isa"] == isa and receipt["check"]["passed"], receipt
        ts.attention(q, k, v, batch, session=ts.Session("cpu", isa=isa))
    else:
        assert done.returncode != 0 and lacks in done.stderr, done.stderr
        try:
            ts.Session("cpu", isa=isa)
        except ts.TesseraError as error:
            assert lacks in str(error), error
        else:
            raise AssertionError(f"a session of {isa}")
if platform.machine() == "x86_64":
    # The bytes of AMX's instruction tilerelease prove that AMX code is there.
    for file in (ts._core.__file__, folder / "_program"):
        assert b"\xc4\xe2\x78\x49\xc0" in pathlib.Path(file).read_bytes(), file

told = run("--version").stdout.strip()
assert told.split()[-1] == ts.__version__, told
print(told, "imported by Python", sys.version.split()[0] + ", ISAs run:",
      *here)
