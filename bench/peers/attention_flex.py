"""Times compiled PyTorch FlexAttention on the CPU, where it has no backward.

The block mask is made outside the timed call, as our plan is.
"""

import numpy as np
import torch
import torch._dynamo
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attention_peer as peer

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BLOCK = 128
MAX_EAGER = 8192  # tokens; eager create_block_mask builds every pair


def mask_mod(case, ids):
    def causal(b, h, q, k):
        return q >= k

    def window(b, h, q, k):
        return (q >= k) & (q - k < peer.WINDOW)

    def documents(b, h, q, k):
        return (q >= k) & (ids[q] == ids[k])

    def both(b, h, q, k):
        return (q >= k) & (q - k < peer.WINDOW) & (ids[q] == ids[k])

    return {
        "causal": causal,
        "softcap": causal,
        "window": window,
        "documents": documents,
        "both": both,
    }[case]


def softcap(score, b, h, q, k):
    return peer.SOFTCAP * torch.tanh(score / peer.SOFTCAP)


def flex(session, compiled, case):
    tokens = session.args.tokens
    dtype = DTYPES[session.args.dtype]
    q, k, v = (
        torch.from_numpy(x).to(dtype) for x in session.tensors(case)[:3]
    )
    blocks = None
    if case != "full":
        create = create_block_mask
        if tokens > MAX_EAGER:
            create = torch.compile(create_block_mask)
        blocks = create(
            mask_mod(case, torch.from_numpy(session.args.ids)),
            None,
            None,
            tokens,
            tokens,
            device="cpu",
            BLOCK_SIZE=BLOCK,
        )
    kept = {}

    def call():
        with torch.no_grad():
            kept["out"] = compiled(
                q,
                k,
                v,
                score_mod=softcap if case == "softcap" else None,
                block_mask=blocks,
            )

    return call, lambda: {"out": kept["out"][0, -1].float().numpy()}


def main():
    args = peer.parse(__doc__.splitlines()[0])
    torch.set_num_threads(args.threads)
    torch._dynamo.config.recompile_limit = 100
    session = peer.Session(args)
    peer.announce("flex", {"torch": torch.__version__, "numpy": np.__version__})
    compiled = torch.compile(flex_attention, dynamic=False)
    order = ("softcap", "documents", "window", "both", "causal", "full")
    for case in order:
        if case in args.cases:
            session.measure(
                "flex",
                case,
                peer.FORWARD,
                lambda: flex(session, compiled, case),
            )


main()
