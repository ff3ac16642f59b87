"""Records the attention calls of models of transformers and checks them by
fp64.

The code between the calls is transformers' own, with any attention. So ours is
right if each call is right under the mask, scale and other arguments that eager
attention got in the same call.
"""

import contextlib
import sys
from types import SimpleNamespace

import judge
import numpy as np
import tessera.transformers
from transformers import AttentionInterface


def array(x):
    """A copy as NumPy array, since a cache is overwritten later."""
    return None if x is None else x.detach().float().numpy().copy()


@contextlib.contextmanager
def recorded(model):
    """A list of the calls; each gets its gradients during the backward pass."""
    calls = []

    def watch(name, attend):
        def watched(module, query, key, value, mask, **more):
            out, weights = attend(module, query, key, value, mask, **more)
            call = SimpleNamespace(
                name=name,
                arrays=[array(x) for x in (query, key, value)], out=array(out),
                mask=array(mask), scale=more.get("scaling"),
                softcap=more.get("softcap") or 0.0, sinks=more.get("s_aux"),
                dout=None, leaves=(query, key, value))
            if out.requires_grad:
                for x in call.leaves:
                    x.retain_grad()
                out.register_hook(lambda g: setattr(call, "dout", array(g)))
            calls.append(call)
            return out, weights
        return watched

    theirs = sys.modules[type(model).__module__]
    eager = theirs.eager_attention_forward
    theirs.eager_attention_forward = watch("eager", eager)
    ours = tessera.transformers._attention
    AttentionInterface.register("tessera", watch("tessera", ours))
    try:
        yield calls
    finally:
        theirs.eager_attention_forward = eager
        AttentionInterface.register("tessera", ours)


def legal_pairs(call):
    """Legal pairs [batch, queries, keys], from the mask added to eager's
    scores."""
    q, k, _ = call.arrays
    shape = (len(q), q.shape[2], k.shape[2])
    if call.mask is None:
        return np.ones(shape, bool)
    return np.broadcast_to(call.mask[:, 0, :, :k.shape[2]] == 0, shape)


def check_call(call, eager):
    """Checks a call by fp64. For a query without a key eager attention gives a
    mean, which no later code reads, and ours gives 0."""
    turn = lambda x: None if x is None else x.swapaxes(1, 2)
    legal = legal_pairs(eager)
    want = judge.attention(
        *call.arrays, legal, scale=eager.scale, softcap=eager.softcap,
        sinks=array(eager.sinks), dout=turn(call.dout))
    out = turn(call.out)
    seen = np.broadcast_to(legal.any(2)[:, None], out.shape[:3])
    if call is not eager:
        seen = np.ones_like(seen)
    judge.check(out[seen], want[0][seen], "out")
    if call.dout is not None:
        found = [array(x.grad) for x in call.leaves]
        for x, w, name in zip(found, want[2:], ("dq", "dk", "dv")):
            judge.check(x, w, name)
        if call.sinks is not None:
            judge.check(array(call.sinks.grad), want[5], "dsink")


def check_calls(ours, eager):
    assert len(ours) == len(eager) > 0
    # The first calls have equal inputs: no attention ran before them.
    for x, y in zip(ours[0].arrays, eager[0].arrays):
        np.testing.assert_array_equal(x, y)
    for call, other in zip(ours, eager):
        assert (call.name, other.name) == ("tessera", "eager")
        check_call(call, other)
        check_call(other, other)
