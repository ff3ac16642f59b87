"""Predicted cycles of XLA's three attention programs on v6e, from the vendor's
schedules. Shared by dispatch_costs.py and predicted_gate.py."""

import re
import typing

CALLED = re.compile(r"(?:calls|to_apply|body)=%([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Program:
    """A dumped program: the cycles of each computation of its HLO."""

    def __init__(self, told, hlo):
        self.bodies, self.entry = {}, None
        for line in hlo.splitlines():
            if head := re.match(r"(ENTRY )?%(\S+) \(.*\{$", line):
                body = self.bodies.setdefault(head[2], [])
                self.entry = head[2] if head[1] else self.entry
            elif op := re.match(r"\s+(?:ROOT )?%(\S+) = (.*)$", line):
                body.append(op.groups())
        cycles = {k["name"]: k["cycles_loops_once"] for k in told["kernels"]}
        ops = [op for body in self.bodies.values() for op in body]
        by_text = {self.text(rest): cycles[name] for name, rest in ops
                   if name in cycles}
        self.cycles = {name: cycles.get(name, by_text.get(self.text(rest), 0))
                       for name, rest in ops}

    def text(self, rest):
        called = CALLED.search(rest)
        inside = self.bodies.get(called[1], []) if called else []
        plain = re.sub(r", (metadata|backend_config)=.*|%[\w.\-]+", "%", rest)
        return plain + "".join(self.text(r) for _, r in inside)

    def walk(self, name, depth, loops):
        """Cycles of one pass over a computation without its loops, which are
        added to `loops` by depth."""
        total = 0
        for op, rest in self.bodies[name]:
            if " while(" in rest:
                inside = self.walk(CALLED.search(rest)[1], depth + 1, loops)
                loops.setdefault(depth + 1, []).append(inside)
            elif " conditional(" in rest:
                arms = re.findall(r"%([\w.\-]+)", BRANCHES.search(rest)[1])
                total += min(self.walk(arm, depth, {}) for arm in arms)
            elif " call(" in rest:
                total += self.walk(CALLED.search(rest)[1], depth, loops)
            else:
                total += self.cycles[op]
        return total


class Sizes(typing.NamedTuple):
    """Sizes of a call's arrays."""

    heads: int = 8
    kv_heads: int = 8
    dim: int = 128
    dtype: str = "bf16"

    def flags(self):
        return ["--heads", self.heads, "--kv-heads", self.kv_heads,
                "--head-dim", self.dim, "--dtype", self.dtype]

    def name(self):
        return f"{self.heads}of{self.kv_heads}x{self.dim}-{self.dtype}"


def xla_costs(predictor, case, method, tokens, backward, sizes):
    """Cycles of a case of `tessera-bench xla`: outside of the loops, of a row
    or column, and of a tile."""
    name = f"{method}-{case}-{tokens}-{'backward' if backward else 'forward'}"
    name += f"-{sizes.name()}"
    emit = [f"{predictor.tessera}-bench", "xla", "--program", "--cases", case]
    emit += ["--methods", method, "--tokens", tokens, *sizes.flags()]
    emit += ["--backward"] * backward
    told = predictor.schedule(name, ["--target", "v6e:1x1"], emit)
    hlo = next((predictor.folder / name).glob("*TLP-hlo.txt")).read_text()
    read, loops = Program(told, hlo), {}
    outside = read.walk(read.entry, 0, loops)
    return [outside, *(max(loops.get(d, [0])) for d in (1, 2))]
