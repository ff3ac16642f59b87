"""Times OpenVINO's scaled_dot_product_attention on the CPU, forward: whole, and
called for each document or for a batch of chunks of queries.

For bfloat16 only the inference precision is set; inputs stay float32 arrays.
"""

import numpy as np
import openvino as ov
import openvino.opset13 as ops

import attention_peer as peer

MAX_MASKED = 16384  # tokens whose dense mask fits in memory


def compiled(session, batch, queries, keys, causal, masked):
    dim = session.args.head_dim
    shapes = [[batch, peer.HEADS, n, dim] for n in (queries, keys, keys)]
    if masked:
        shapes.append([batch, 1, queries, keys])
    inputs = [ops.parameter(s, np.float32) for s in shapes]
    node = ops.scaled_dot_product_attention(*inputs, causal=causal)
    core = ov.Core()
    return core.compile_model(
        ov.Model([node], inputs, "attention"),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": session.args.dtype,
            "INFERENCE_NUM_THREADS": session.args.threads,
            "PERFORMANCE_HINT": "LATENCY",
        },
    ).create_infer_request()


def whole(session, case):
    tokens = session.args.tokens
    masked = case in ("window", "documents", "both")
    request = compiled(session, 1, tokens, tokens, case == "causal", masked)
    arrays = session.tensors(case)[:3]
    if masked:
        everything = range(tokens)
        allowed = peer.legal(case, session.args.ids, everything, everything)
        mask = np.where(allowed, np.float32(0), np.float32(-1e30))
        arrays = arrays + [mask[None, None]]
    for i, array in enumerate(arrays):
        request.set_input_tensor(i, ov.Tensor(array))
    return request.infer, lambda: {
        "out": request.get_output_tensor(0).data[0, -1]
    }


def by_item(session, case, chunk):
    """One call for each work item, with K and V copied into the model's
    inputs."""
    ids = session.args.ids
    q, k, v = session.tensors(case)[:3]
    out = np.empty_like(q)
    made = {}
    work = []
    for item in peer.work_items(case, ids, chunk):
        s, e, key, causal = item
        shape = (e - s, e - key, causal)
        if shape not in made:
            made[shape] = compiled(session, 1, *shape, not causal)
        mask = None
        if not causal:
            mask = peer.additive_mask(case, ids, item)
            mask = np.maximum(mask, np.float32(-1e30))
        work.append((s, e, key, made[shape], mask))

    def call():
        for s, e, key, request, mask in work:
            request.get_input_tensor(0).data[:] = q[:, :, s:e]
            request.get_input_tensor(1).data[:] = k[:, :, key:e]
            request.get_input_tensor(2).data[:] = v[:, :, key:e]
            if mask is not None:
                request.get_input_tensor(3).data[0, 0] = mask
            request.infer()
            out[:, :, s:e] = request.get_output_tensor(0).data

    return call, lambda: {"out": out[0, -1]}


def by_batch(session, case, chunk):
    """All chunks of a window in one call, each with the keys that it may
    see."""
    q, k, v = session.tensors(case)[:3]
    out = np.empty_like(q)
    heads, tokens, dim = q.shape[1:]
    count = tokens // chunk
    keys = chunk + peer.WINDOW
    request = compiled(session, count, chunk, keys, False, True)
    i = np.arange(tokens).reshape(count, 1, chunk, 1)
    first = np.arange(count) * chunk - peer.WINDOW
    j = (first[:, None] + np.arange(keys)).reshape(count, 1, 1, keys)
    allowed = (j >= 0) & (i >= j) & (i - j < peer.WINDOW)
    request.get_input_tensor(3).data[:] = np.where(allowed, 0, -1e30)
    for t in (1, 2):
        request.get_input_tensor(t).data[:] = 0

    def call():
        request.get_input_tensor(0).data[:] = (
            q[0].reshape(heads, count, chunk, dim).swapaxes(0, 1)
        )
        for t, x in ((1, k), (2, v)):
            data = request.get_input_tensor(t).data
            for c, at in enumerate(first.tolist()):
                data[c, :, max(0, -at) :] = x[0, :, max(0, at) : at + keys]
        request.infer()
        out[0].reshape(heads, count, chunk, dim)[:] = (
            request.get_output_tensor(0).data.swapaxes(0, 1)
        )

    return call, lambda: {"out": out[0, -1]}


def main():
    args = peer.parse(__doc__.splitlines()[0])
    session = peer.Session(args)
    peer.announce("openvino", {"openvino": ov.__version__})
    small = args.tokens <= MAX_MASKED
    plan = [
        ("full", "", lambda: whole(session, "full")),
        ("causal", "", lambda: whole(session, "causal")),
        ("documents", "-each", lambda: by_item(session, "documents", 0)),
        ("both", "-chunk256", lambda: by_item(session, "both", 256)),
    ]
    for chunk in (256, 512):
        if args.tokens % chunk == 0:
            plan.append(
                (
                    "window",
                    f"-chunk{chunk}",
                    lambda chunk=chunk: by_batch(session, "window", chunk),
                )
            )
    if small:
        plan.append(
            ("documents", "-mask", lambda: whole(session, "documents"))
        )
    for case, how, prepare in plan:
        if case in args.cases:
            session.measure("openvino" + how, case, peer.FORWARD, prepare)


main()
