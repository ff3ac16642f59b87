"""Measures the float32 error of a model: how much its results change when the
last bit of every weight changes."""

import numpy as np
import torch


def moved(model, run, draws=4):
    """The largest change over some draws, by name. `run` returns arrays by
    name. The model's weights are restored."""
    assert model.dtype == torch.float32
    weights = [p.detach().clone() for p in model.parameters()]
    before = run()
    most = dict.fromkeys(before, 0.0)
    with torch.no_grad():
        for _ in range(draws):
            for p, w in zip(model.parameters(), weights):
                way = torch.where(torch.rand_like(w) < 0.5, -1.0, 1.0)
                p.copy_(torch.nextafter(w, way * torch.inf))
            with torch.enable_grad():
                after = run()
            for name, x in after.items():
                most[name] = max(most[name], np.abs(x - before[name]).max())
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    assert min(most.values()) > 0, most
    return most


def check_same(found, model, run):
    """Checks `found` against `run`'s results for `model`. Three times the
    change by last bits is allowed: once for each of the two, once for what the
    draws miss."""
    want, most = run(), moved(model, run)
    assert found.keys() == want.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, want[name], rtol=0, atol=3 * most[name],
                                   err_msg=name)
