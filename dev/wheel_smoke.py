"""An installed wheel in an environment of its own: one batch planned and run, the
program, the handlers that JAX calls, and no compiler for any of it."""

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
# The first of a document sees itself alone, the second does not.
assert (out[:, :, ::2] == v[:, :, ::2]).all()
assert (out[:, :, 1::2] != v[:, :, 1::2]).all()

assert len(ts._core._jax_handlers()) == 3
told = subprocess.run([sys.executable, "-m", "tessera", "--version"],
                      check=True, capture_output=True, text=True).stdout.strip()
assert told.split()[-1] == ts.__version__, told
print(told, "imported by Python", sys.version.split()[0])
