"""How far float32 itself is off, measured: by how much what a model gives moves
when every weight moves by its last bit."""

import numpy as np
import torch


def moved(model, run, draws=4):
    """The most of some draws. What `run` gives is an array; the model's weights
    are then as they were."""
    assert model.dtype == torch.float32
    weights = [p.detach().clone() for p in model.parameters()]
    before = run()
    most = 0.0
    with torch.no_grad():
        for _ in range(draws):
            for p, w in zip(model.parameters(), weights):
                way = torch.where(torch.rand_like(w) < 0.5, -1.0, 1.0)
                p.copy_(torch.nextafter(w, way * torch.inf))
            most = max(most, np.abs(run() - before).max())
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    assert most > 0
    return most
