"""The TPU memory that a call needs, computed before anything is compiled."""

import json
from typing import Any

from . import _core

_GIB = 1 << 30


class Budget:
    """The memory of a call on a TPU. `fields` is the JSON of `tessera fit
    --json`: every array of both programs (forward and backward), with its
    bytes."""

    def __init__(self, fields: dict[str, Any], error: str | None) -> None:
        self.fields = fields
        self.error = error

    @property
    def fits(self) -> bool:
        """Whether the call fits, whatever the compiler does: `needed` is at
        most `room`."""
        return self.fields["fits"]

    @property
    def needed(self) -> int:
        """Upper bound of the larger program's bytes, with room for its code."""
        return self.fields["needed"]

    @property
    def room(self) -> int:
        """Bytes that one device of the chip has for a program."""
        return self.fields["chip"]["room"]

    @property
    def residuals(self) -> int:
        """Bytes of arrays that the forward pass keeps for the backward pass."""
        return self.fields["residuals"]

    @property
    def would_fit(self) -> list[dict[str, Any]]:
        """Changes each of which alone makes the call fit. Empty if the call
        fits, or if no single change is enough."""
        return self.fields["would_fit"]

    def check(self) -> None:
        """Raises TesseraError if the call does not fit. The message names the
        largest parts and the changes that would fit."""
        if self.error is not None:
            raise _core.TesseraError(self.error)

    def json(self) -> str:
        """`fields` as JSON."""
        return json.dumps(self.fields)

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Budget) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.json())

    def __repr__(self) -> str:
        fits = ("fits" if self.fits else "does not fit"
                if self.fields["beyond_room"] else "may fit")
        return (f"Budget('{self.fields['chip']['name']}', "
                f"{self.needed / _GIB:.2f} of {self.room / _GIB:.2f} GiB, "
                f"{fits})")


def fit(batch: _core.Batch, *, heads: int, kv_heads: int | None = None,
        head_dim: int = 128, v_head_dim: int | None = None,
        dtype: str = "bf16", softcap: float = 0.0, sink_logits: bool = False,
        backward: bool = False, dlse: bool = False,
        sink_telemetry: bool = False, lane: str = "xla",
        method: str = "worklist", target: str = "v6e", mesh: str = "",
        balance: str = "rows", exchange: str = "rounds", ceilings: str = "",
        work: str = "", evenness: str = "", uneven: bool = False,
        lowering_reason: str | None = None) -> Budget:
    """The TPU memory that a call on this batch needs, by arithmetic alone: it
    needs no TPU and no compiler.

    `lane` is 'xla', with `method` 'worklist', 'chunked' or 'dense', or
    'mosaic'. `mesh`, such as 'seq=4', asks for the memory of one device of that
    mesh; `balance`, `exchange`, `ceilings`, `work`, `evenness` and `uneven` are
    those of `shard`. `sink_telemetry` adds the program of sink telemetry, for
    lane 'mosaic' without a mesh. `target` is v4, v5e, v5p, v6e or tpu7x.
    """
    told, error = _core._fit(
        batch, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        v_head_dim=v_head_dim, dtype=dtype, softcap=softcap,
        sink_logits=sink_logits, backward=backward, dlse=dlse,
        sink_telemetry=sink_telemetry, lane=lane, method=method,
        target=target, mesh=mesh, balance=balance,
        exchange=exchange, ceilings=ceilings, work=work, evenness=evenness,
        uneven=uneven, lowering_reason=lowering_reason)
    return Budget(json.loads(told), error)
