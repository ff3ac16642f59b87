"""How far float32 itself is off, measured: by how much what a model gives moves
when every weight moves by its last bit."""

import numpy as np
import torch


def moved(model, run, draws=4):
    """The most of some draws, by name. What `run` gives are arrays by name; the
    model's weights are then as they were."""
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
    """`found` is what `run` gives of `model`, but for one time what last bits
    move for each of the two and one for what draws leave out."""
    want, most = run(), moved(model, run)
    assert found.keys() == want.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, want[name], rtol=0, atol=3 * most[name],
                                   err_msg=name)
