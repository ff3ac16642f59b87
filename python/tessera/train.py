"""A decoder trained on packed rows, on any PJRT plugin.

    import tessera.data, tessera.train

    loader = tessera.data.Loader(documents, tokens=4096, rows=8)
    trainer = tessera.train.Trainer({"vocab": 256, "layers": 4, "width": 256}, rows=8, tokens=4096)
    for batch in loader:
        print(trainer.step(batch, learning_rate=3e-4)["loss"])
    open("model.safetensors", "wb").write(trainer.checkpoint())
"""

from ._core import Trainer

__all__ = ["Trainer"]
