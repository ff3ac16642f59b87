"""The bounds of judge.py equal the library's own, correct results stay below
them, and small errors are refused."""

import json
import os
import subprocess

import judge
import ml_dtypes
import numpy as np
import oracle
import pytest
import tessera as ts
from tensor_file import load, store

NAMES = ("out", "lse", "dq", "dk", "dv", "dsink")
LENGTH, HEADS, KV_HEADS, DIM = 96, 4, 2, 16


def problem(dtype=np.float32, softcap=0.0, seed=0):
    """The results of a session on random arrays, and the expected ones."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 4, LENGTH)).astype(np.int32)
    made = ts.plan(ts.causal & ts.documents, q_len=LENGTH, doc_ids=ids,
                   tile=(16, 16))
    mask = oracle.legal(("and", ("causal",), ("documents",)), LENGTH, LENGTH,
                        ids)[None]
    draw = lambda *shape: rng.standard_normal(shape, np.float32)
    q, dout = draw(2, 1, HEADS, LENGTH, DIM).astype(dtype)
    k, v = draw(2, 1, KV_HEADS, LENGTH, DIM).astype(dtype)
    sinks, dlse = draw(HEADS), draw(1, HEADS, LENGTH)
    kind = {np.float32: "f32", np.float16: "f16"}.get(dtype, "bf16")
    ready = ts.Session("cpu").prepare(
        made, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype=kind,
        softcap=softcap, sink_logits=True, backward=True, dlse=True)
    saved = ready.forward(q, k, v, sink_logits=sinks)
    found = [saved.out, saved.lse, *ready.backward(saved, dout, dlse=dlse)]
    call = dict(softcap=softcap, sinks=sinks, dout=dout, dlse=dlse)
    want = judge.attention(q, k, v, mask, **call)
    return [np.array(x) for x in found], want, (q, k, v, mask, call)


# The largest element is changed by `step`. For dtypes of 16 bits the step is what
# rounding P and dS may cost in a sum.
@pytest.mark.parametrize("dtype,step", [(np.float32, 2**-10),
                                        (np.float16, 2**-7),
                                        (ml_dtypes.bfloat16, 2**-4)])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_one_element_that_is_wrong_is_refused(dtype, step, softcap):
    found, want, _ = problem(dtype, softcap)
    for name, x, w in zip(NAMES, found, want):
        assert 0 < judge.check(x, w, name) < 1
        at = np.unravel_index(np.abs(w.value).argmax(), w.value.shape)
        # The bound of a sum over all queries allows all errors to have one
        # sign.
        by = 4 * step if name == "dsink" and dtype is not np.float32 else step
        for wrong in (w.value[at] * (1 + by), np.nan, np.inf, -np.inf):
            y = x.astype(np.float64)
            y[at] = wrong
            with pytest.raises(AssertionError, match=rf"^{name}\[{at[0]}"):
                judge.check(y, w, name)
        if dtype is np.float32:  # most other elements are refused too
            assert (judge.shares(w.value * (1 + step), w) > 1).mean() > 0.8


def test_keys_and_values_in_another_order_are_refused():
    _, want, (q, k, v, mask, call) = problem()
    swapped = np.arange(LENGTH)
    swapped[[7, 8]] = 8, 7
    for arrays in ((q, k[:, :, swapped], v), (q, k, v[:, :, swapped])):
        wrong = judge.attention(*arrays, mask, **call)
        for name, x, w in zip(NAMES, wrong, want):
            if arrays[1] is k and name in ("lse", "dv"):
                continue  # they do not depend on the values
            with pytest.raises(AssertionError, match=rf"^{name}\["):
                judge.check(x.value, w, name)


def test_kinds_must_match():
    nan, inf, u = np.nan, np.inf, 2.0**-24
    for dtype, value, error, passing, failing in [
            ("float32", 1, 1e-3, [1, 1.001], [1.0011, nan, inf]),
            ("float32", 1, 0, [1 + u], [1 + 2 * u]),
            ("float32", 0, 0, [0, -0.0], [2.0**-149, nan]),
            ("float32", nan, 1, [nan], [0, inf]),
            ("float32", inf, 0, [inf], [-inf, 1e38, nan]),
            ("float32", -inf, 0, [-inf], [inf, -1e30, nan]),
            ("bfloat16", 1, 0, [1 + 2.0**-8], [1 + 2.0**-7]),
            ("float16", 70000, 0, [inf], [-inf]),  # too large for it
            ("float16", 60000, 0, [60000], [inf])]:
        one = judge.Expected(np.float64([value]), np.float64([error]), dtype)
        for found in passing + failing:
            share = judge.shares(np.float64([found]), one)
            assert (share <= 1) == (found in passing or (
                np.isnan(found) and np.isnan(value))), (dtype, value, found)


def test_gradients_are_finite_differences():
    """Gradients equal central differences of the expected values. The error of
    a difference is a third of its change when the step is halved; three times that
    is allowed."""
    _, _, (q, k, v, mask, call) = problem(softcap=5.0)
    rng = np.random.default_rng(1)
    parts = [x.astype(np.float64) for x in (q, k, v, call["sinks"])]

    def loss(q, k, v, sinks):
        out, lse = judge.attention(q, k, v, mask, softcap=5.0, sinks=sinks,
                                   dtype="float32")
        return (out.value * call["dout"]).sum() + (
            lse.value * call["dlse"]).sum()

    grads = judge.attention(q, k, v, mask, **call)[2:]
    for i, g in enumerate(grads):
        way = rng.standard_normal(g.value.shape)
        at = lambda s: loss(*(x + s * way if j == i else x
                              for j, x in enumerate(parts)))
        slope = lambda s: (at(s) - at(-s)) / (2 * s)
        wide, narrow = slope(2e-4), slope(1e-4)
        want = (g.value * way).sum()
        assert abs(narrow - want) <= abs(narrow - wide), NAMES[2 + i]
        assert abs(narrow - wide) < 2**-10 * abs(want)  # the allowed error is small


def test_queries_in_blocks_are_the_same():
    _, want, (q, k, v, mask, call) = problem()
    whole, judge.BLOCK = judge.BLOCK, 17
    try:
        again = judge.attention(q, k, v, mask, **call)
    finally:
        judge.BLOCK = whole
    for a, b in zip(again, want):
        # Only roundings of fp64 differ, since sums have another order.
        assert judge.check(a.value, b) < 2**-16
        np.testing.assert_allclose(a.error, b.error,
                                   rtol=HEADS * LENGTH * 2.0**-52)


def test_shares_are_those_of_the_librarys_judge(tmp_path):
    """The program reports the element that used most of its bound, and its share.
    judge.py must find the same, in every array."""
    program = os.path.join(os.path.dirname(ts.__file__), "_program")
    if not os.path.exists(program):
        pytest.skip("the program is not beside the package")
    worst = set()
    for seed in range(8):
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            softcap, sized = 2.0 * (seed % 2), (1, 0.1, 8, 1)[seed // 2]
            rng = np.random.default_rng(seed)
            draw = lambda *shape: rng.standard_normal(shape, np.float32)
            q, dout = draw(2, 2, HEADS, 40, DIM).astype(dtype)
            k, v = draw(2, 2, KV_HEADS, 40, DIM).astype(dtype)
            given = dict(q=q * dtype(sized), k=k, v=v, dout=dout,
                         dlse=draw(2, HEADS, 40), sink_logits=draw(HEADS))
            given["q"] = given["q"].astype(dtype)
            store(tmp_path / "in.safetensors", given)
            receipt = json.loads(subprocess.run(
                [program, "run", "--mask", "causal & window(9, 0)", "--inputs",
                 str(tmp_path / "in.safetensors"), "--outputs",
                 str(tmp_path / "out.safetensors"), "--lane", "cpu",
                 "--softcap", str(softcap), "--backward", "--check", "--json"],
                capture_output=True, text=True, check=True).stdout)
            made = load(tmp_path / "out.safetensors")
            mask = np.repeat(oracle.legal(("and", ("causal",), (
                "window", 9, 0)), 40, 40)[None], 2, 0)
            want = judge.attention(
                given["q"], k, v, mask, softcap=softcap, dout=dout,
                dlse=given["dlse"], sinks=given["sink_logits"])
            share = {n: judge.check(made[n], w, n) for n, w in zip(
                (*NAMES[:5], "dsink_logits"), want)}
            told = receipt["check"]
            most = max(share, key=share.get)
            assert told["worst"].startswith(most + "["), (told, share)
            # Both are differences in fp64, about 2^-28 apart.
            assert abs(told["max_bound_ratio"] / share[most] - 1) < 2**-16
            worst.add(most)
    # Gradients are the worst array only in kernels that round products to
    # bfloat16.
    assert len(worst) >= (4 if "bf16" in receipt["isa"] else 2), worst
