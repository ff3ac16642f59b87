"""Times onnxruntime's attention on the CPU: MultiHeadAttention,
GroupQueryAttention and ONNX's own Attention, forward, float32.
"""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import attention_peer as peer

MAX_MASKED = 16384  # tokens whose dense mask fits in memory


def packed(x):
    """[1, heads, tokens, dim] as [1, tokens, heads * dim]."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(
        1, x.shape[2], -1
    )


def build(session, op, domain, inputs, outputs, **attributes):
    """A session around one node; shapes are (name, type, shape)."""
    infos = [
        [helper.make_tensor_value_info(*i) for i in part]
        for part in (inputs, outputs)
    ]
    node = helper.make_node(
        op,
        [i[0] for i in inputs],
        [o[0] for o in outputs],
        domain=domain,
        **attributes,
    )
    model = helper.make_model(
        helper.make_graph([node], "attention", *infos),
        opset_imports=[
            helper.make_opsetid("", 23),
            helper.make_opsetid("com.microsoft", 1),
        ],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = session.args.threads
    options.inter_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def prepared(session, case, kind):
    tokens, dim = session.args.tokens, session.args.head_dim
    q, k, v = (packed(x) for x in session.tensors(case)[:3])
    wide = [1, tokens, peer.HEADS * dim]
    inputs = [(n, TensorProto.FLOAT, wide) for n in "qkv"]
    outputs = [("out", TensorProto.FLOAT, wide)]
    feed = {"q": q, "k": k, "v": v}
    if kind == "mha":
        built = build(
            session,
            "MultiHeadAttention",
            "com.microsoft",
            inputs,
            outputs,
            num_heads=peer.HEADS,
            unidirectional=int(case == "causal"),
        )
    elif kind == "gqa":
        past = [1, peer.HEADS, 0, dim]
        inputs += [
            ("past_k", TensorProto.FLOAT, past),
            ("past_v", TensorProto.FLOAT, past),
            ("last", TensorProto.INT32, [1]),
            ("total", TensorProto.INT32, []),
        ]
        outputs += [(n, TensorProto.FLOAT, None) for n in ("all_k", "all_v")]
        feed["past_k"] = feed["past_v"] = np.zeros(past, np.float32)
        feed["last"] = np.array([tokens - 1], np.int32)
        feed["total"] = np.array(tokens, np.int32)
        built = build(
            session,
            "GroupQueryAttention",
            "com.microsoft",
            inputs,
            outputs,
            num_heads=peer.HEADS,
            kv_num_heads=peer.HEADS,
            local_window_size=peer.WINDOW if case == "window" else -1,
            softcap=peer.SOFTCAP if case == "softcap" else 0.0,
        )
    else:
        more = {"is_causal": int(case == "causal")}
        if case not in ("full", "causal"):
            everything = range(tokens)
            inputs.append(("mask", TensorProto.BOOL, [tokens, tokens]))
            feed["mask"] = peer.legal(
                case, session.args.ids, everything, everything
            )
        built = build(
            session,
            "Attention",
            "",
            inputs,
            outputs,
            q_num_heads=peer.HEADS,
            kv_num_heads=peer.HEADS,
            **more,
        )
    kept = {}

    def call():
        kept["out"] = built.run(None, feed)[0]

    return call, lambda: {"out": kept["out"][0, :, -dim:]}


def main():
    args = peer.parse(__doc__.splitlines()[0])
    session = peer.Session(args)
    peer.announce(
        "onnxruntime",
        {"onnxruntime": ort.__version__, "onnx": onnx.__version__},
    )
    plan = [
        ("mha", "full"),
        ("gqa", "causal"),
        ("gqa", "softcap"),
        ("gqa", "window"),
        ("mha", "causal"),
        ("attention", "causal"),
        ("attention", "documents"),
        ("attention", "both"),
    ]
    for kind, case in plan:
        masked = kind == "attention" and case != "causal"
        if case not in args.cases or masked and args.tokens > MAX_MASKED:
            continue
        if args.dtype != "f32":
            line = {
                "peer": f"onnxruntime-{kind}",
                "case": case,
                "dtype": args.dtype,
                "direction": peer.FORWARD,
            }
            session.skip(line, "its CPU kernels are float32")
            continue
        session.measure(
            f"onnxruntime-{kind}",
            case,
            peer.FORWARD,
            lambda: prepared(session, case, kind),
        )


main()
