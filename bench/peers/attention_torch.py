"""Times PyTorch's attention on the CPU: scaled_dot_product_attention, and its
flash kernels called for each document or chunk of queries.

The direct calls are the best use of dense kernels under a mask: no autograd
between the calls, and gradients are added in place.
"""

import numpy as np
import torch
import torch.nn.functional as F

import attention_peer as peer

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
MAX_MASKED = 16384  # tokens whose dense mask fits in memory
aten = torch.ops.aten


def queries_a_block(case, tokens):
    """The least queries of a block of the flash kernels, by the queries of a
    call. The kernels sum a gradient block by block in the array that they
    return, so with 16 bits each block adds a rounding, which the bound needs. A
    block has 512 keys or at least so many queries."""
    calls = {"full": tokens, "causal": tokens, "window": min(tokens, 256)}
    queries = calls.get(case, 1)  # a document may be short
    return 256 if queries >= 768 else 64 if queries >= 192 else 32


def last_head(x):
    return x[0, -1].float().numpy()


def tensors(session, case):
    dtype = DTYPES[session.args.dtype]
    return [torch.from_numpy(x).to(dtype) for x in session.tensors(case)]


def sdpa(session, case, direction, mask):
    q, k, v, dout = tensors(session, case)
    if case == "decode":
        # The queries of a group become rows of one head, so that K and V are
        # read once.
        q = q.reshape(1, k.shape[1], -1, q.shape[3])
    ids = session.args.ids
    bits = None
    if mask:
        everything = range(len(ids))
        bits = torch.from_numpy(peer.legal(case, ids, everything, everything))
        bits = bits[None, None]
    kept = {}

    def forward():
        kept["out"] = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=bits,
            is_causal=case == "causal",
        )

    def quiet_forward():
        with torch.no_grad():
            forward()

    def both():
        q.grad = k.grad = v.grad = None
        forward()
        kept["out"].backward(dout)

    def results():
        got = {"out": last_head(kept["out"].detach())}
        if case == "decode":
            got["out"] = got["out"][-1:]
        if direction == peer.BACKWARD:
            got.update(
                dq=last_head(q.grad), dk=last_head(k.grad), dv=last_head(v.grad)
            )
        return got

    if direction == peer.FORWARD:
        return quiet_forward, results
    for x in (q, k, v):
        x.requires_grad_()
    return both, results


def kernels(session, case, direction, chunk):
    q, k, v, dout = tensors(session, case)
    ids = session.args.ids
    work = []
    for item in peer.work_items(case, ids, chunk):
        mask = None
        if not item[3]:
            mask = torch.from_numpy(peer.additive_mask(case, ids, item))
            mask = mask[None, None].to(q.dtype)
        work.append((item[0], item[1], item[2], mask))
    out, dq, dk, dv = (torch.empty_like(x) for x in (q, q, k, v))
    kept = {}

    def forward():
        for s, e, key, mask in work:
            o, lse = aten._scaled_dot_product_flash_attention_for_cpu(
                q[:, :, s:e],
                k[:, :, key:e],
                v[:, :, key:e],
                0.0,
                mask is None,
                attn_mask=mask,
            )
            out[:, :, s:e] = o
            kept[s] = (o, lse)

    def both():
        forward()
        dk.zero_()
        dv.zero_()
        for s, e, key, mask in work:
            o, lse = kept[s]
            a, b, c = aten._scaled_dot_product_flash_attention_for_cpu_backward(
                dout[:, :, s:e],
                q[:, :, s:e],
                k[:, :, key:e],
                v[:, :, key:e],
                o,
                lse,
                0.0,
                mask is None,
                attn_mask=mask,
            )
            dq[:, :, s:e] = a
            dk[:, :, key:e] += b
            dv[:, :, key:e] += c

    def results():
        got = {"out": last_head(out)}
        if direction == peer.BACKWARD:
            got.update(dq=last_head(dq), dk=last_head(dk), dv=last_head(dv))
        return got

    return forward if direction == peer.FORWARD else both, results


def main():
    args = peer.parse(__doc__.splitlines()[0])
    torch.set_num_threads(args.threads)
    stored_every = {c: queries_a_block(c, args.tokens) for c in peer.CASES}
    session = peer.Session(args, stored_every)
    peer.announce("torch", {"torch": torch.__version__, "numpy": np.__version__})
    directions = [peer.FORWARD] + ([peer.BACKWARD] if args.backward else [])
    # The strongest peers run first, in case the time runs out.
    for direction in directions:
        for case in args.cases:
            if case in ("full", "causal"):
                session.measure(
                    "torch-sdpa",
                    case,
                    direction,
                    lambda: sdpa(session, case, direction, False),
                )
            if case in ("documents", "window", "both"):
                for chunk in (256, 512) if case == "window" else (256,):
                    name = "torch-kernels"
                    if case != "documents":
                        name += f"-chunk{chunk}"
                    session.measure(
                        name,
                        case,
                        direction,
                        lambda: kernels(session, case, direction, chunk),
                    )
    if "decode" in args.cases:
        session.measure(
            "torch-sdpa",
            "decode",
            peer.FORWARD,
            lambda: sdpa(session, "decode", peer.FORWARD, False),
        )
    for case in args.cases:
        masked = case in ("window", "documents", "both")
        if masked and args.tokens <= MAX_MASKED:
            session.measure(
                "torch-sdpa-mask",
                case,
                peer.FORWARD,
                lambda: sdpa(session, case, peer.FORWARD, True),
            )


main()
