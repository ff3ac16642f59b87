"""The predicted cost of a batch's TPU kernel: runs `tessera schedule`."""

import json
import os
import subprocess
import tempfile
from typing import Any

from . import _core
from ._launch import program
from ._refuse import refuse


class Schedule:
    """Predicted cycles of a TPU kernel. `fields` is the JSON of `tessera
    schedule --json`, `picture` an SVG of slot use, which a notebook shows."""

    def __init__(self, fields: dict[str, Any], picture: str) -> None:
        self.fields = fields
        self.picture = picture

    @property
    def cycles(self) -> float | None:
        """Cycles of the whole program; None if a loop's trips are unknown."""
        return self.fields["cycles"]

    @property
    def cycles_per_tile(self) -> float | None:
        """Cycles for each active tile of 256 x 256 of one head; None if `cycles`
        is None or no tile is active."""
        return self.fields["cycles_per_tile"]

    @property
    def tile(self) -> tuple[int, int]:
        """Queries and keys of one tile of the kernel."""
        return tuple(self.fields["own"]["tile"])

    @property
    def tiles_per_pass(self) -> int:
        """Tiles that the kernel takes in one pass."""
        return self.fields["own"]["tiles_per_pass"]

    def json(self) -> str:
        """`fields` as JSON."""
        return json.dumps(self.fields)

    def _repr_html_(self) -> str:
        return self.picture

    def __repr__(self) -> str:
        if self.cycles is None:
            total, a_tile = "cycles not known", "trips missing"
        else:
            total, a_tile = f"{self.cycles:.0f} cycles", "no active tile"
        if self.cycles_per_tile is not None:
            a_tile = f"{self.cycles_per_tile:.1f} a tile"
        return f"Schedule({self.fields['target']}, {total}, {a_tile})"


def schedule(batch: _core.Batch, *, heads: int = 8,
             kv_heads: int | None = None, head_dim: int = 128,
             v_head_dim: int | None = None, dtype: str = "bf16",
             scale: float | None = None, softcap: float = 0.0,
             sink_logits: bool = False,
             target: str = "v6e:1x1", backward: bool = False,
             dlse: bool = False, tiles_per_pass: int | None = None,
             fetch_ahead: int | None = None, row_sum: str = "exact",
             lowering_reason: str | None = None,
             query_chunk: int | None = None,
             numbers: str = "finite") -> Schedule:
    """The cost of our TPU kernel for this batch, by libtpu's own schedule.

    This needs the package `libtpu`, but no TPU. libtpu compiles in a separate
    process, because it reads the folder for its dumps only once per process.
    The arguments are those of `compile`.
    """
    if not isinstance(batch, _core.Batch):
        refuse("python", "batch must be a tessera.Batch", type(batch).__name__)
    given = {
        "heads": heads, "kv-heads": kv_heads, "head-dim": head_dim,
        "v-head-dim": v_head_dim, "dtype": dtype,
        "scale": scale, "softcap": softcap, "target": target,
        "tiles-per-pass": tiles_per_pass, "fetch-ahead": fetch_ahead,
        "row-sum": row_sum, "lowering-reason": lowering_reason,
        "query-chunk": query_chunk, "numbers": numbers,
    }
    flags = [part for name, value in given.items() if value is not None
             for part in (f"--{name}", str(value))]
    flags += ["--backward"] * backward + ["--dlse"] * dlse
    flags += ["--sink-logits"] * sink_logits
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        plan = os.path.join(folder, "batch.plan")
        picture = os.path.join(folder, "picture.svg")
        batch.save(plan)
        done = subprocess.run(
            [program(), "schedule", "--plan", plan, "--json", "--picture", picture,
             *flags],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _core.TesseraError(_said(done))
        with open(picture, encoding="utf-8") as f:
            return Schedule(json.loads(done.stdout), f.read())


def _said(done: "subprocess.CompletedProcess[str]") -> str:
    """The program's error, which is the last line of its stderr."""
    lines = done.stderr.strip().splitlines() or [
        f"[schedule] the program must end well, found {done.returncode}"]
    return lines[-1].removeprefix("tessera: ")
