"""Ctrl-C during long calls: some calls end, others return their result first
(docs/python.md has the list)."""

import importlib.util
import subprocess
import sys

import plugins
import pytest
from long_calls import ENDED, WENT_ON, interrupted

PREPARE = """
import functools, itertools, time
import numpy as np, tessera as ts, tessera.data

def row(heads, tokens):  # of no memory, until somebody writes
    return np.zeros((1, heads, tokens, 64), np.float32)

def prepared(tokens, lane="cpu", **more):
    made = ts.plan(ts.full, q_len=tokens)
    return ts.Session(lane, **more).prepare(made, heads=8, head_dim=64,
                                            backward=True, sink_telemetry=True)

def documents():
    while True:  # that never fill a row
        time.sleep(0.01)
        yield [1, 2, 3]

def receipt():
    x, made = row(2, 64), ts.plan(ts.full, q_len=64)
    ready = ts.Session("cpu").prepare(made, heads=2, head_dim=64)
    return ready.receipt(ready.forward(x, x, x))
"""

CALLS = {
    "plan": ("functools.partial(ts.plan, q_len=1 << 20, tile=(64, 64))",
             "ts.causal"),
    "plan by documents": (
        "functools.partial(ts.plan, q_len=1 << 17, batch=64, tile=(64, 64), "
        "doc_ids=np.zeros((64, 1 << 17), np.int32))",
        "ts.causal & ts.documents"),
    "route": ("functools.partial(ts.route, ts.causal & ts.routed(8, 256), "
              "row(2, 1 << 20))", "row(1, 1 << 20)"),
    "attention": ("functools.partial(ts.attention, *[row(2, 1 << 17)] * 3)",
                  "ts.plan(ts.full, q_len=1 << 17)"),
    "forward": ("functools.partial(prepared(1 << 16).forward, "
                "*[row(8, 1 << 16)] * 2)", "row(8, 1 << 16)"),
    "a reference's forward": (
        "functools.partial(prepared(3072, 'reference').forward, "
        "*[row(8, 3072)] * 2)", "row(8, 3072)"),
    "backward": ("(lambda p, x: functools.partial(p.backward, "
                 "p.forward(x, x, x)))(prepared(1 << 13, threads=1), "
                 "row(8, 1 << 13))", "row(8, 1 << 13)"),
    "sink telemetry": ("(lambda p, x: functools.partial(p.sink_telemetry, "
                       "p.forward(x, x, x)))(prepared(1 << 13, threads=1), "
                       "row(8, 1 << 13))", "4"),
    # The receipt is of a shorter call; it is compared after the long run.
    "verify": ("functools.partial(ts.verify, receipt(), *[row(2, 1 << 17)] * 3)",
               "ts.plan(ts.full, q_len=1 << 17)"),
    "a loader": ("next", "tessera.data.Loader(documents(), tokens=1 << 20)"),
    "a loader that goes on": (
        "functools.partial(tessera.data.Loader, tokens=1 << 20, state="
        "{**tessera.data.Loader([], tokens=1 << 20).state(), 'offset': 1 << 20})",
        "documents()"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_long_call_ends(name):
    assert interrupted(PREPARE, *CALLS[name]) == ENDED


IN_A_PLUGIN = PREPARE + """
session, x, told = ts.Session("xla"), row(2, 64), []
of = dict(heads=2, head_dim=64, backward=True, sink_telemetry=True)
small = ts.plan(ts.causal, q_len=64)
"""


# A plugin's compiler cannot be stopped; the program that it made is kept.
@plugins.needs("xla_cpu_pjrt")
def test_a_compile_gives_its_result_first():
    again = ("kept[0].forward(x, x, x); "
             "assert session.prepare(small, **of).counters()['compiles'] == 0")
    found = interrupted(IN_A_PLUGIN, "functools.partial(session.prepare, **of)",
                        "small", again)
    assert found == WENT_ON


@plugins.needs("xla_cpu_pjrt")
def test_warming_ends_between_contracts():
    again = ("assert len(told) < 30; "
             "session.prepare(small, **of).forward(x, x, x)")
    found = interrupted(
        IN_A_PLUGIN, "functools.partial(session.warm, threads=1, progress="
        "lambda *at: told.append(at), **of)",
        "[ts.plan(ts.causal, q_len=64 * n) for n in range(1, 32)]", again)
    assert found == ENDED


IN_JAX = PREPARE + """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # or it may be short
import jax, tessera.jax

def planned(count):  # all of one tree
    ids = np.repeat(np.arange(count, dtype=np.int32), (1 << 15) // count)
    return jax.device_put(ts.plan(ts.documents, q_len=1 << 15, doc_ids=ids,
                                  max_steps=1 << 14))

x = jax.numpy.ones((1, 1, 1 << 15, 64))
attend = functools.partial(jax.jit(tessera.jax.attention), x, x, x)
short, long = planned(1 << 10), planned(1)
first = np.asarray(attend(short))
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax"),
                    reason="jax is not installed")
def test_a_call_in_a_jax_program_gives_its_result_first():
    again = "assert len(kept) == 1 and np.array_equal(attend(short), first)"
    assert interrupted(IN_JAX, "attend", "long", again) == WENT_ON


@pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import libtpu"],
                   capture_output=True).returncode != 0,
    reason="libtpu is not installed")
def test_a_schedule_ends_with_its_process():
    found = interrupted(
        PREPARE, "functools.partial(ts.schedule, heads=8)",
        "ts.plan(ts.causal, q_len=1 << 15, tile=(512, 256))")
    assert found == ENDED
