"""`tessera.torch.attention` against the NumPy oracle, eager and compiled."""

import gc
import pickle
import subprocess
import sys
import threading

import finite_differences
import judge
import numpy as np
import oracle
import pytest
import tessera as ts
import tessera.data
import tessera.torch
import torch
from long_calls import ENDED, interrupted
from tessera import _core
from torch.autograd import forward_ad
from torch._dynamo.testing import CompileCounterWithBackend

LENGTH = 96
MASK = ts.causal & ts.window(20, 0) & ts.documents
TUPLE = ("and", ("causal",), ("window", 20, 0), ("documents",))


def ids_of(rng, length=LENGTH):
    return np.sort(rng.integers(0, 6, length)).astype(np.int32)


def planned(ids, mask=MASK, **more):
    return ts.plan(mask, q_len=LENGTH, doc_ids=ids, tile=(16, 16), **more)


def legal(ids, mask=TUPLE):
    return oracle.legal(mask, LENGTH, LENGTH, ids)[None]


def arrays(rng, heads=4, kv_heads=2, dim=8, batch=1):
    shape = lambda h: (batch, h, LENGTH, dim)
    return tuple(rng.standard_normal(shape(h), np.float32)
                 for h in (heads, kv_heads, kv_heads))


def tensors(arrays, dtype=torch.float32, grad=False):
    return tuple(torch.from_numpy(x).to(dtype).requires_grad_(grad)
                 for x in arrays)


def counted(f):
    """A compiled function, and the counter of its compiles."""
    counter = CompileCounterWithBackend("inductor")
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, backend=counter), counter


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_gradients(compiled, layout, softcap):
    rng = np.random.default_rng(1)
    ids = ids_of(rng)
    batch = planned(ids)
    given = arrays(rng)
    sinks = rng.standard_normal(4).astype(np.float32)
    dout = rng.standard_normal(given[0].shape).astype(np.float32)
    dlse = rng.standard_normal(given[0].shape[:3]).astype(np.float32)
    turn = (lambda x: x) if layout == "bhsd" else (
        lambda x: x.transpose(1, 2))

    def both(q, k, v, sinks, batch):
        out, lse = tessera.torch.attention(
            turn(q), turn(k), turn(v), batch, sink_logits=sinks,
            softcap=softcap, layout=layout, return_lse=True)
        return turn(out), lse

    if compiled:
        both, _ = counted(both)
    q, k, v = tensors(given, grad=True)
    s = torch.from_numpy(sinks).requires_grad_()
    out, lse = both(q, k, v, s, batch)
    want = judge.attention(*given, legal(ids), softcap=softcap, sinks=sinks,
                           dout=dout, dlse=dlse)
    torch.autograd.backward((out, lse), (torch.from_numpy(dout),
                                         torch.from_numpy(dlse)))
    judge.check_all((out.detach(), lse.detach(), q.grad, k.grad, v.grad,
                     s.grad), want)


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradients_are_finite_differences(layout, softcap):
    rng = np.random.default_rng(20)
    ids = ids_of(rng)
    batch = planned(ids)
    turn = lambda x: x if layout == "bhsd" else x.transpose(1, 2)
    given, weights = finite_differences.drawn(rng, LENGTH)

    def attend(q, k, v, sinks):
        out, lse = tessera.torch.attention(
            turn(q), turn(k), turn(v), batch, sink_logits=sinks,
            softcap=softcap, layout=layout, return_lse=True)
        return turn(out), lse

    def results(*arrays):
        return [x.numpy() for x in attend(*tensors(arrays))]

    def gradients(*arrays):
        leaves = tensors(arrays, grad=True)
        return torch.autograd.grad(attend(*leaves), leaves,
                                   tensors(weights))

    judged = lambda q, k, v, sinks: judge.attention(
        q, k, v, legal(ids), softcap=softcap, sinks=sinks)
    finite_differences.check(results, judged, gradients, given,
                             weights)


def test_gradients_of_one_result_and_of_spread_numbers():
    rng = np.random.default_rng(2)
    ids = ids_of(rng)
    batch = planned(ids)
    given = arrays(rng)
    ones, none = np.ones(given[0].shape), np.zeros(given[0].shape[:3])
    for use, dout, dlse in ((0, ones, none), (1, 0 * ones, none + 1)):
        q, k, v = tensors(given, grad=True)
        tessera.torch.attention(q, k, v, batch,
                                return_lse=True)[use].sum().backward()
        want = judge.attention(*given, legal(ids), dout=dout, dlse=dlse)[2:]
        for found, right in zip((q.grad, k.grad, v.grad), want):
            judge.check(found, right)
    # Only k requires a gradient.
    q, k, v = tensors(given)
    k.requires_grad_()
    tessera.torch.attention(q, k, v, batch).sum().backward()
    judge.check(k.grad, judge.attention(*given, legal(ids), dout=ones)[3])


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradients_are_copied_only_where_kernels_cannot_read_them(layout):
    rng = np.random.default_rng(13)
    bshd = layout == "bshd"
    turn = (lambda x: x.transpose(1, 2)) if bshd else lambda x: x
    batch = planned(ids_of(rng))
    q, k, v = (turn(x).contiguous().requires_grad_()
               for x in tensors(arrays(rng)))
    out = tessera.torch.attention(q, k, v, batch, layout=layout)
    # Like `out`: expanded over heads, turned, padded rows; then a number, one
    # row for all tokens, dims that are not contiguous.
    row = torch.randn(1, 1, LENGTH, 8)
    read = [turn(row.expand(1, 4, LENGTH, 8)),
            torch.randn(1, 4, LENGTH, 8) if not bshd else
            turn(torch.randn(1, 4, LENGTH, 8)),
            turn(torch.randn(1, 4, LENGTH, 11)[..., 2:10])]
    copied = [torch.ones(()).expand(out.shape),
              turn(row[:, :, :1].expand(1, 4, LENGTH, 8)),
              turn(torch.randn(1, 4, 8, LENGTH).transpose(2, 3))]
    for dout in (*read, *copied):
        used = tessera.torch._plain(dout, bshd)
        assert torch.equal(used, dout)
        assert (used is dout) == any(dout is x for x in read)
        found, want = (torch.autograd.grad(out, (q, k, v), x, retain_graph=True)
                       for x in (dout, dout.clone(
                           memory_format=torch.contiguous_format)))
        assert all(map(torch.equal, found, want))


def test_gradients_of_a_loss_of_the_output():
    rng = np.random.default_rng(3)
    ids = ids_of(rng)
    given = arrays(rng)
    inputs = tensors(given, grad=True)
    loss = (tessera.torch.attention(*inputs, planned(ids)) ** 2).sum()
    judge.check_grads_of_square(torch.autograd.grad(loss, inputs), *given,
                                legal(ids))


def test_opcheck():
    rng = np.random.default_rng(4)
    batch = planned(ids_of(rng))
    for dtype in (torch.float32, torch.bfloat16):
        for sinks in (None, torch.zeros(4, requires_grad=True)):
            q, k, v = tensors(arrays(rng), dtype, grad=True)
            torch.library.opcheck(
                torch.ops.tessera.attention.default,
                (q, k, v, sinks, batch._torch, None, 0.0, False),
                rtol=0, atol=0)


@pytest.mark.parametrize("backward", [False, True])
def test_one_compile_for_100_batches(backward):
    rng = np.random.default_rng(5)
    f, counter = counted(lambda q, k, v, batch: tessera.torch.attention(
        q, k, v, batch) * 2)  # exact in any float
    given = arrays(rng)
    seen = set()
    for _ in range(100):
        ids = ids_of(rng)
        seen.add(ids.tobytes())
        q, k, v = tensors(given, grad=backward)
        out = f(q, k, v, planned(ids))
        want = judge.attention(*given, legal(ids),
                               dout=np.full(given[0].shape, 2))
        judge.check(out.detach() / 2, want[0])
        if backward:  # by now only the graph refers to the batch
            gc.collect()
            out.sum().backward()
            judge.check(k.grad, want[3])
    assert len(seen) == 100 and counter.frame_count == 1
    # The program does not depend on the mask, so another mask runs it too.
    other = planned(ids, ts.causal & ts.documents)
    want = legal(ids, ("and", ("causal",), ("documents",)))
    judge.check(f(*tensors(given, grad=backward), other).detach() / 2,
                judge.attention(*given, want)[0])
    assert counter.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats(dtype):
    rng = np.random.default_rng(6)
    ids = ids_of(rng)
    q, k, v = tensors(arrays(rng), dtype, grad=True)
    out = tessera.torch.attention(q, k, v, planned(ids))
    out.backward(torch.ones_like(out))
    want = judge.attention(*(x.detach().float().numpy() for x in (q, k, v)),
                           legal(ids), dout=np.ones(q.shape),
                           dtype=str(dtype).removeprefix("torch."))
    assert out.dtype == q.grad.dtype == v.grad.dtype == dtype
    for found, right in zip((out, q.grad, k.grad, v.grad),
                            (want[0], *want[2:5])):
        judge.check(found.detach().float(), right)


def test_batch_rows_counts_and_decode():
    rng = np.random.default_rng(7)
    ids = np.stack([ids_of(rng), ids_of(rng)])
    counts = np.array([LENGTH, 50], np.int32)
    batch = ts.plan(MASK, q_len=LENGTH, batch=2, doc_ids=torch.from_numpy(ids),
                    valid_token_counts=counts, tile=(16, 16))
    given = arrays(rng, batch=2)
    out = tessera.torch.attention(*tensors(given), batch)
    mask = np.stack([oracle.legal(TUPLE, LENGTH, LENGTH, i, count=c)
                     for i, c in zip(ids, counts)])
    judge.check(out, judge.attention(*given, mask)[0])
    assert (out[1, :, 50:] == 0).all()
    one = ts.plan(ts.causal, q_len=1, kv_len=LENGTH, batch=2,
                  q_offset=[30, 60], tile=(8, 16))
    q = given[0][:, :, :1]
    mask = np.stack([oracle.legal(("causal",), 1, LENGTH, offset=o)
                     for o in (30, 60)])
    judge.check(tessera.torch.attention(*tensors((q, *given[1:])), one),
                judge.attention(q, *given[1:], mask)[0])


def test_views_are_read_where_they_are():
    rng = np.random.default_rng(8)
    batch = planned(ids_of(rng))
    q, k, v = tensors(arrays(rng, kv_heads=4))
    want = tessera.torch.attention(q, k, v, batch)
    fused = torch.stack((q, k, v), 3).transpose(1, 2).contiguous()
    turned = [fused[:, :, :, i].transpose(1, 2) for i in range(3)]
    assert not any(x.is_contiguous() for x in turned)
    assert (tessera.torch.attention(*turned, batch) == want).all()


def test_numbers_are_never_their_negatives():
    # The memory holds the negated numbers, and DLPack does not say so.
    rng = np.random.default_rng(9)
    ids = ids_of(rng)
    batch = planned(ids)
    q, k, v = tensors(arrays(rng))
    assert torch.complex(q, -q).conj().imag.is_neg()
    negated = torch._neg_view(-q)
    assert torch.equal(tessera.torch.attention(negated, k, v, batch),
                       tessera.torch.attention(q, k, v, batch))
    sinks = torch._neg_view(torch.ones(4))
    out = torch._neg_view(torch.zeros_like(q))
    docs = torch._neg_view(-torch.from_numpy(ids))
    for call, words in (
            (lambda: ts.attention(negated, k, v, batch), "q must hold its own "
             "numbers, as .* found Tensor of torch.float32 with its negative"),
            (lambda: ts.attention(q, k, v, batch, sink_logits=sinks),
             "sink_logits must hold its own numbers"),
            (lambda: ts.attention(q, k, v, batch, out=out),
             "out must hold its own numbers"),
            (lambda: planned(docs), "doc_ids must hold its own numbers"),
            (lambda: next(tessera.data.Loader([docs], tokens=LENGTH, rows=1)),
             "found a tensor with its negative bit set"),
            (lambda: ts.attention(torch.complex(q, q).conj(), k, v, batch),
             "q must be an array .* found Tensor of torch.complex64")):
        with pytest.raises(ts.TesseraError, match=words) as e:
            call()
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("compiled", [False, True])
def test_scaled_dot_product_attention(compiled):
    rng = np.random.default_rng(9)
    q, k, v = given = arrays(rng)
    ours = tessera.torch.scaled_dot_product_attention
    if compiled:
        ours, _ = counted(ours)
    torchs = torch.nn.functional.scaled_dot_product_attention
    for more in ({}, {"is_causal": True}, {"scale": 0.3}):
        for x in (q, q[:, :, :40]):  # is_causal aligns at the first key
            mask = np.ones((1, x.shape[2], LENGTH), bool)
            mask = np.tril(mask) if "is_causal" in more else mask
            want, _ = judge.attention(x, k, v, mask, scale=more.get("scale"))
            for f in (ours, torchs):
                judge.check(f(*tensors((x, k, v)), enable_gqa=True, **more),
                            want)
    ids = ids_of(rng)
    want, _ = judge.attention(*given, legal(ids))
    for f, mask in ((ours, planned(ids)),
                    (torchs, torch.from_numpy(legal(ids)))):
        judge.check(f(*tensors(given), mask, enable_gqa=True), want)


def test_what_it_cannot_do_is_refused_by_name():
    rng = np.random.default_rng(10)
    batch = planned(ids_of(rng))
    q, k, v = tensors(arrays(rng))
    f = tessera.torch.attention
    sdpa = tessera.torch.scaled_dot_product_attention
    copy = batch._torch.clone()
    stale = torch.ops.tessera.attention
    gone = planned(ids_of(rng))._torch.clone()  # its batch is gone
    gc.collect()
    rest = (None, 0.0, False)
    for call, words in [
            (lambda: f(q.double(), k.double(), v.double(), batch), "F32"),
            (lambda: f(q, k.bfloat16(), v, batch), "BF16"),
            (lambda: f(q.long(), k, v, batch), "dtype|F32"),
            (lambda: f(q, k.to("meta"), v, batch), "where q is, on cpu"),
            (lambda: f(q, k, v, batch, sink_logits=torch.zeros(4, device="meta")),
             "sink_logits must be where q is, on cpu, found meta"),
            (lambda: f(q.to_sparse(), k, v, batch), "array|CPU"),
            (lambda: f(q.transpose(2, 3), k, v, batch), "contiguous"),
            (lambda: f(q[0], k, v, batch), "4 dimensions"),
            (lambda: f(q.numpy(), k, v, batch), "q .* tensor, found ndarray"),
            (lambda: f(q, k, v, batch, sink_logits=[0.0] * 4),
             "sink_logits must be a tensor, found list"),
            (lambda: sdpa(q, k, None), "v must be a tensor, found NoneType"),
            (lambda: f(q[:, :3], k, v, batch), "kv_heads"),
            (lambda: f(q[:, :, :-1], k, v, batch), "q_len|tokens"),
            (lambda: f(q, k[:, :, :-1], v, batch), "kv_len|tokens"),
            (lambda: f(q, k, v[..., :3], batch), "multiple|dim"),
            (lambda: f(q, k, v, legal), "tessera.Batch"),
            (lambda: f(q, k, v, batch, layout="x\ny"), r"found 'x\\ny'"),
            (lambda: f(q, k, v, batch, sink_logits=torch.zeros(3)), "sink"),
            (lambda: f(q, k, v, batch, sink_logits=torch.zeros(4, 1)),
             r"shape \[4\], found \[4, 1\]"),
            (lambda: f(q[:, :, :0], k, v, batch), r"found \[1, 4, 0, 8\]"),
            (lambda: f(q, k, v, batch,
                       sink_logits=torch.zeros(4).bfloat16()), "float32"),
            (lambda: f(q, k, v, batch, scale=float("nan")), "scale"),
            (lambda: stale(q, k, v, None, torch.tensor([1]), *rest), "batch"),
            (lambda: stale(q, k, v, None, gone, *rest), "must live"),
            (lambda: stale(q, k, v, None, copy.int(), *rest), "batch"),
            (lambda: sdpa(q, k, v, enable_gqa=True, dropout_p=0.1), "dropout"),
            (lambda: sdpa(q, k, v), "enable_gqa"),
            (lambda: sdpa(q, k, v, batch, is_causal=True, enable_gqa=True),
             "is_causal"),
            (lambda: sdpa(q, k, v, torch.ones(1, 1, LENGTH, LENGTH),
                          enable_gqa=True), "tessera.Batch")]:
        with pytest.raises(ts.TesseraError, match=r"\[[a-z]+\] .*" + words):
            call()
    # A copy may be used as long as its batch lives.
    assert (stale(q, k, v, None, copy, *rest)[0] == f(q, k, v, batch)).all()


def test_a_gradient_has_no_gradient():
    rng = np.random.default_rng(11)
    batch = planned(ids_of(rng))
    q, k, v = tensors(arrays(rng), grad=True)
    dq, = torch.autograd.grad(
        tessera.torch.attention(q, k, v, batch).sum(), q, create_graph=True)
    with pytest.raises(ts.TesseraError,
                       match="found a gradient of its gradient"):
        dq.sum().backward()


def test_torch_func():
    rng = np.random.default_rng(15)
    ids = ids_of(rng)
    batch = planned(ids)
    many = [arrays(rng) for _ in range(3)]
    loss = lambda q, k, v: (tessera.torch.attention(q, k, v, batch) ** 2).sum()
    grads = torch.func.grad(loss, (0, 1, 2))
    for f in (grads, torch.compile(grads, fullgraph=True, backend="aot_eager")):
        judge.check_grads_of_square(f(*tensors(many[0])), *many[0], legal(ids))
    stacked = [torch.stack(x) for x in zip(*map(tensors, many))]
    for i, found in enumerate(zip(*torch.func.vmap(grads)(*stacked))):
        judge.check_grads_of_square(found, *many[i], legal(ids))
    sdpa = lambda *x: (tessera.torch.scaled_dot_product_attention(
        *x, enable_gqa=True) ** 2).sum()
    full = np.ones((1, LENGTH, LENGTH), bool)
    for i, found in enumerate(zip(*torch.func.vmap(
            torch.func.grad(sdpa, (0, 1, 2)))(*stacked))):
        judge.check_grads_of_square(found, *many[i], full)


def test_what_has_no_derivative_is_refused_and_never_0():
    rng = np.random.default_rng(16)
    batch = planned(ids_of(rng))
    q, k, v = tensors(arrays(rng))
    out = lambda q: tessera.torch.attention(q, k, v, batch)
    jvp = lambda q: torch.func.jvp(out, (q,), (q,))[1]
    grad = torch.func.grad(lambda q: out(q).sum())
    loss = lambda q: (out(q) ** 2).sum()

    def tangent_of(f, x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x))).tangent

    def gradient_of(dout):
        x = q.clone().requires_grad_()
        return torch.autograd.grad(out(x), x, dout)[0]

    for call in (lambda: jvp(q), lambda: torch.compile(jvp)(q),
                 lambda: tangent_of(out, q),
                 lambda: tangent_of(gradient_of, torch.ones_like(q)),
                 lambda: tangent_of(lambda q: tessera.torch.
                     scaled_dot_product_attention(
                         q, k, v, batch, enable_gqa=True), q),
                 lambda: torch.func.jacfwd(loss)(q),
                 lambda: torch.autograd.functional.hessian(loss, q),
                 lambda: torch.func.grad(lambda q: grad(q).sum())(q)):
        with pytest.raises(ts.TesseraError,
                           match=r"\[torch\] .* backward and once, found"):
            call()


def test_a_scale_that_wants_a_gradient_is_refused():
    rng = np.random.default_rng(17)
    batch = planned(ids_of(rng))
    q, k, v = tensors(arrays(rng))
    some = torch.tensor(0.5, requires_grad=True)
    sdpa = lambda scale: tessera.torch.scaled_dot_product_attention(
        q, k, v, batch, enable_gqa=True, scale=scale)
    for call in (lambda: tessera.torch.attention(q, k, v, batch, scale=some),
                 lambda: tessera.torch.attention(q, k, v, batch, softcap=some),
                 lambda: sdpa(some),
                 lambda: torch.func.grad(lambda x: sdpa(x).sum())(some.detach())):
        with pytest.raises(ts.TesseraError, match="must be a number, found a"):
            call()
    tangent = torch.ones(())
    with pytest.raises(ts.TesseraError, match="found a tangent"):
        torch.func.jvp(sdpa, (some.detach(),), (tangent,))
    assert (sdpa(some.detach()) == sdpa(0.5)).all()


def test_batches_come_back_from_files_and_processes():
    rng = np.random.default_rng(12)
    q, k, v = tensors(arrays(rng))
    batch = planned(ids_of(rng))
    f, counter = counted(tessera.torch.attention)
    want = f(q, k, v, batch)
    for other in (pickle.loads(pickle.dumps(batch)),
                  ts.Batch.from_bytes(batch.to_bytes())):
        assert (f(q, k, v, other) == want).all()
    assert counter.frame_count == 1


def run(text, *args):
    """The output of a Python program in a new process."""
    return subprocess.run([sys.executable, "-c", text, *args], text=True,
                          capture_output=True, check=True).stdout.strip()


def test_a_batch_of_another_process_is_refused():
    planned_there = (
        "import sys, torch, tessera as ts, tessera.torch\n"
        "plan = lambda: ts.plan(ts.causal, q_len=16, tile=(16, 16))\n")
    number = run(planned_there + "print(int(plan()._torch))")
    said = run(planned_there + (
        "batches = [plan() for _ in range(100)]\n"
        "x = torch.zeros(1, 1, 16, 8)\n"
        "try:\n"
        "    torch.ops.tessera.attention(\n"
        "        x, x, x, None, torch.tensor([int(sys.argv[1])]), None, 0.0,\n"
        "        False)\n"
        "except ts.TesseraError as e:\n"
        "    print(e)\n"), number)
    assert "its batch must live" in said


def test_a_batch_that_inference_planned_has_gradients():
    rng = np.random.default_rng(21)
    ids, given = ids_of(rng), arrays(rng)
    inputs = tensors(given, grad=True)
    with torch.inference_mode():
        batch = planned(ids)
        tessera.torch.attention(*inputs, batch)
    loss = (tessera.torch.attention(*inputs, batch) ** 2).sum()
    judge.check_grads_of_square(torch.autograd.grad(loss, inputs), *given,
                                legal(ids))


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_is_that_of_torchs_own(compiled):
    rng = np.random.default_rng(22)
    ids = ids_of(rng)
    batch = planned(ids)
    run = lambda q, k, v: tessera.torch.attention(q, k, v, batch)
    torchs = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, torch.from_numpy(legal(ids)), enable_gqa=True)
    q, k, v = tensors(arrays(rng), grad=True)
    want = run(*(x.bfloat16() for x in (q, k, v)))
    f = counted(run)[0] if compiled else run
    mixed = (q, k, v.bfloat16())  # rotary embeddings give such mixed dtypes
    with torch.autocast("cpu", torch.bfloat16):
        out = f(*mixed)
        assert out.dtype == torchs(*mixed).dtype == torch.bfloat16
    assert (out == want).all()
    found = torch.autograd.grad(out.sum(), (q, k, v))
    right = torch.autograd.grad(want.sum(), (q, k, v))
    for x, y in zip(found, right):
        assert x.dtype == torch.float32 and (x == y).all()
    assert f(q, k, v).dtype == torch.float32


def test_nothing_grows_over_10000_calls():
    rng = np.random.default_rng(13)
    q, k, v = tensors(arrays(rng, heads=2), grad=True)
    ids = [ids_of(rng) for _ in range(50)]

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    def calls(n):
        for i in range(n):
            batch = planned(ids[i % 50])
            out = tessera.torch.attention(q, k, v, batch)
            if i % 10 == 0:
                out.sum().backward()
        q.grad = k.grad = v.grad = None

    calls(2000)
    gc.collect()
    held, before = _core._torch_numbers(), resident()
    calls(10000)
    gc.collect()
    assert _core._torch_numbers() == held
    assert resident() - before < 4 << 20


def test_eight_threads_on_one_batch():
    rng = np.random.default_rng(14)
    ids = ids_of(rng)
    given = arrays(rng)
    want = judge.attention(*given, legal(ids), dout=np.ones(given[0].shape))
    batch = planned(ids)
    wrong = []

    def work():
        for _ in range(20):
            q, k, v = tensors(given, grad=True)
            out = tessera.torch.attention(q, k, v, batch)
            out.sum().backward()
            wrong.extend(
                name for name, x, w in (("out", out.detach(), want[0]),
                                        ("dv", v.grad, want[4]))
                if judge.shares(x, w).max() > 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_importing_tessera_imports_no_torch():
    code = "import sys, tessera; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_interrupt_ends_a_long_call():
    prepare = """
import torch, tessera as ts, tessera.torch
x = torch.zeros(1, 1, 1 << 19, 64)
made = ts.plan(ts.full, q_len=1 << 19)
# PyTorch imports for a second at its first call: Ctrl-C is to meet ours.
tessera.torch.attention(*[x[:, :, :64]] * 3, ts.plan(ts.full, q_len=64))
"""
    call = "functools.partial(tessera.torch.attention, x, x, x)"
    # The whole call would take minutes, longer than the test waits.
    assert interrupted(prepare, call, "made") == ENDED
