"""A decoder trained on packed rows, on any PJRT plugin.

    import tessera.data, tessera.train

    loader = tessera.data.Loader(documents, tokens=4096, rows=8)
    trainer = tessera.train.Trainer({"vocab": 256, "layers": 4, "width": 256}, rows=8, tokens=4096)
    for batch in loader:
        rate = tessera.train.cosine_rate(trainer.steps + 1, steps=1000, peak=3e-4)
        print(trainer.step(batch, learning_rate=rate)["loss"])
    open("model.safetensors", "wb").write(trainer.checkpoint())

A Llama or a Gemma 2 of Hugging Face's library:

    start = tessera.train.import_hugging_face("Llama-3.2-1B")
    trainer = tessera.train.Trainer(tessera.train.checkpoint_model(start), rows=8, tokens=4096)
    trainer.restore(start)
    ...
    tessera.train.export_hugging_face(trainer.checkpoint(), "tuned")
"""

from ._core import (Trainer, checkpoint_model, cosine_rate,
                    export_hugging_face, import_hugging_face)

__all__ = ["Trainer", "checkpoint_model", "cosine_rate", "export_hugging_face",
           "import_hugging_face"]
