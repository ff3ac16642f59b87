"""Memory of one kernel run: refs, copies in flight, semaphores.

Unwritten memory is NaN, or for integers a pattern and a flag that makes a read
an error. After a copy is started, its destination is NaN (integers: the
pattern) until a wait has seen it land.
"""

import numpy as np

from errors import EvaluatorError
from kinds import DTYPES, SEMAPHORES

# As an id, a count or an index this value is wrong, but plausible.
DEFAULT_POISON = 0x5A5A5A5A


def garbage(shape, dtype, poison):
    """An unwritten array."""
    if dtype.kind in "ib":
        if dtype.kind == "b":
            return np.ones(shape, dtype)
        bits = dtype.itemsize * 8
        unsigned = np.dtype(f"u{dtype.itemsize}")
        value = np.array(poison & ((1 << bits) - 1), unsigned)
        return np.full(shape, value.view(dtype), dtype)
    return np.full(shape, np.nan, dtype)


def overlaps(a, b):
    return np.may_share_memory(a, b) and np.shares_memory(a, b)


class Ref:
    """A view of memory: `data`, and for integers flags of unwritten
    elements."""

    __slots__ = ("machine", "data", "unwritten", "space", "writable", "name")

    def __init__(self, machine, data, unwritten, space, writable, name):
        self.machine = machine
        self.data = data
        self.unwritten = unwritten
        self.space = space
        self.writable = writable
        self.name = name

    def view(self, function):
        """A ref whose arrays are function(array) of these; it must not copy."""
        data = function(self.data)
        flags = None if self.unwritten is None else function(self.unwritten)
        if data.size and not np.may_share_memory(data, self.data):
            raise EvaluatorError(
                f"a view of memory must not move it, found {self.data.shape} "
                f"for {data.shape}"
            )
        return Ref(
            self.machine, data, flags, self.space, self.writable, self.name
        )

    def region(self, starts, sizes, strides=None):
        """The ref of a box, checked against the bounds."""
        shape = self.data.shape
        if len(starts) != len(shape) or len(sizes) != len(shape):
            raise EvaluatorError(
                f"as many indices as dimensions, found {len(starts)} "
                f"for {self.name} of shape {shape}"
            )
        strides = strides or (1,) * len(shape)
        for start, size, stride, dim in zip(starts, sizes, strides, shape):
            last = start + (size - 1) * stride
            if start < 0 or size < 0 or (size and last >= dim):
                raise EvaluatorError(
                    f"access inside bounds, found {tuple(starts)} + "
                    f"{tuple(sizes)} by {tuple(strides)} for {self.name} "
                    f"of shape {shape}"
                )
        box = tuple(
            slice(start, start + (size - 1) * stride + 1 if size else start,
                  stride)
            for start, size, stride in zip(starts, sizes, strides)
        )
        return self.view(lambda array: array[box])

    def read(self, mask=None):
        """A copy of the values; unwritten integers are an error."""
        if self.space not in ("vmem", "smem"):
            raise EvaluatorError(
                f"loads are from vmem or smem, found {self.space} "
                f"for {self.name}"
            )
        if self.unwritten is not None:
            unwritten = self.unwritten
            if mask is not None:
                unwritten = unwritten & mask
            if unwritten.any():
                raise EvaluatorError(
                    f"integers are written before they are read, found "
                    f"{int(unwritten.sum())} unwritten for {self.name}"
                )
        return self.data.copy()

    def write(self, values, mask=None):
        if self.space not in ("vmem", "smem"):
            raise EvaluatorError(
                f"stores are to vmem or smem, found {self.space} "
                f"for {self.name}"
            )
        self.check_write("a store")
        if mask is None:
            self.data[...] = values
            if self.unwritten is not None:
                self.unwritten[...] = False
        else:
            np.copyto(self.data, values, where=mask)
            if self.unwritten is not None:
                self.unwritten[mask] = False

    def check_write(self, what):
        if not self.writable:
            raise EvaluatorError(f"{what} goes to no input, found {self.name}")
        for copy in self.machine.copies:
            for ref in (copy.source, copy.target):
                if overlaps(self.data, ref.data):
                    raise EvaluatorError(
                        f"{what} leaves a copy in flight alone, found "
                        f"{self.name} for {copy}"
                    )


class Semaphore:
    """A count; for copies, the copies in flight and the bytes waited for."""

    def __init__(self, name, is_dma):
        self.name = name
        self.is_dma = is_dma
        self.count = 0
        self.copies = []
        self.waited = 0

    def check_idle(self, when):
        if self.copies:
            raise EvaluatorError(
                f"every copy is waited for {when}, found {self.copies[0]} "
                f"for {self.name}"
            )
        if self.count:
            raise EvaluatorError(
                f"semaphores are 0 {when}, found {self.count} for {self.name}"
            )


class Copy:
    """A copy that was started and has not landed."""

    def __init__(self, source, target, values, flags):
        self.source = source
        self.target = target
        self.values = values
        self.flags = flags

    def __str__(self):
        return (
            f"a copy of {self.source.data.shape} from {self.source.name} "
            f"to {self.target.name}"
        )


class Machine:
    """The state of one run."""

    def __init__(self, poison=DEFAULT_POISON, max_trips=1_000_000):
        self.poison = poison
        self.trips_left = max_trips
        self.copies = []
        self.semaphores = []
        self.scoped = []
        self.bounds = ()
        self.landed = 0

    def trip(self):
        """Counts an iteration of a loop: a runaway loop is an error."""
        self.trips_left -= 1
        if self.trips_left < 0:
            raise EvaluatorError("loops end, found more trips than allowed")

    # Memory.

    def array(self, values, space, name, writable=False):
        """A ref of an array that has its values already."""
        flags = None
        if values.dtype.kind == "i":
            flags = np.zeros(values.shape, np.bool_)
        return Ref(self, values, flags, space, writable, name)

    def fresh(self, kind, name):
        """A ref of unwritten memory, or of new semaphores."""
        if kind.element in SEMAPHORES:
            if kind.space != "semaphore_mem":
                raise EvaluatorError(
                    f"semaphores are in semaphore_mem, found {kind.space}"
                )
            data = np.empty(kind.shape, object)
            for at in np.ndindex(*kind.shape):
                data[at] = Semaphore(
                    f"{name}{list(at)}", kind.element == SEMAPHORES[0]
                )
                self.semaphores.append(data[at])
            return Ref(self, data, None, kind.space, False, name)
        dtype = DTYPES.get(kind.element)
        if dtype is None or -1 in kind.shape:
            raise EvaluatorError(f"scratch of a known shape, found {kind}")
        flags = None
        if dtype.kind == "i":
            flags = np.ones(kind.shape, np.bool_)
        data = garbage(kind.shape, dtype, self.poison)
        return Ref(self, data, flags, kind.space, True, name)

    def allocate(self, kind, name):
        """Memory that lasts until the region around it ends."""
        ref = self.fresh(kind, name)
        self.scoped.append(ref)
        return ref

    def enter(self):
        return len(self.scoped)

    def leave(self, mark):
        for ref in self.scoped[mark:]:
            if ref.space == "semaphore_mem":
                for semaphore in ref.data.flat:
                    semaphore.check_idle("when its region ends")
            else:
                self.check_quiet(ref, "its region ends")
        del self.scoped[mark:]

    def check_quiet(self, ref, when):
        """Checks that no copy in flight touches this memory."""
        for copy in self.copies:
            for side in (copy.source, copy.target):
                if overlaps(ref.data, side.data):
                    raise EvaluatorError(
                        f"no copy is in flight when {when}, found {copy} "
                        f"for {ref.name}"
                    )

    # Copies.

    def start_copy(self, source, target, semaphore):
        semaphore = self.one(semaphore, is_dma=True)
        self.check_ends(source, target)
        if semaphore.waited:
            raise EvaluatorError(
                f"a semaphore is waited out before it is used again, found "
                f"{semaphore.waited} bytes waited for {semaphore.name}"
            )
        target.check_write("a copy")
        if overlaps(source.data, target.data):
            raise EvaluatorError(
                f"a copy's ends are apart, found {source.name} on itself"
            )
        flags = source.unwritten
        copy = Copy(
            source,
            target,
            source.data.copy(),
            None if flags is None else flags.copy(),
        )
        target.data[...] = garbage(
            target.data.shape, target.data.dtype, self.poison
        )
        if target.unwritten is not None:
            target.unwritten[...] = True
        self.copies.append(copy)
        semaphore.copies.append(copy)

    def wait_copy(self, semaphore, source, target):
        """Waits for as many bytes as the target has.

        Copies that share a semaphore land in any order, so none counts as
        landed before the bytes of all are waited for.
        """
        semaphore = self.one(semaphore, is_dma=True)
        self.check_ends(source, target)
        flying = sum(copy.values.nbytes for copy in semaphore.copies)
        semaphore.waited += target.data.nbytes
        if semaphore.waited > flying:
            raise EvaluatorError(
                f"a wait has a copy to wait for, found {flying} bytes in "
                f"flight for {semaphore.waited} waited at {semaphore.name}"
            )
        if semaphore.waited < flying:
            return
        for copy in semaphore.copies:
            copy.target.data[...] = copy.values
            if copy.target.unwritten is not None:
                copy.target.unwritten[...] = copy.flags
            self.copies.remove(copy)
            self.landed += 1
        semaphore.copies = []
        semaphore.waited = 0

    def check_ends(self, source, target):
        a, b = source.data, target.data
        if a.shape != b.shape or a.dtype != b.dtype:
            raise EvaluatorError(
                f"a copy's ends are alike, found {a.dtype}{a.shape} from "
                f"{source.name} for {b.dtype}{b.shape} of {target.name}"
            )
        for ref in (source, target):
            if ref.space not in ("any", "hbm", "vmem", "smem"):
                raise EvaluatorError(
                    f"a copy's end is memory, found {ref.space}"
                )

    # Semaphores.

    def one(self, ref, is_dma):
        if ref.space != "semaphore_mem" or ref.data.size != 1:
            raise EvaluatorError(
                f"one semaphore, found {ref.data.shape} of {ref.space}"
            )
        semaphore = ref.data.reshape(-1)[0]
        if semaphore.is_dma != is_dma:
            raise EvaluatorError(
                f"a semaphore of its own kind, found {semaphore.name}"
            )
        return semaphore

    def signal(self, ref, amount):
        if amount < 0:
            raise EvaluatorError(f"a signal is not negative, found {amount}")
        self.one(ref, is_dma=False).count += amount

    def wait(self, ref, amount):
        semaphore = self.one(ref, is_dma=False)
        if amount < 0 or semaphore.count < amount:
            raise EvaluatorError(
                f"a wait ends, found {semaphore.count} for {amount} "
                f"at {semaphore.name}"
            )
        semaphore.count -= amount

    def read_semaphore(self, ref):
        return self.one(ref, is_dma=False).count

    def finish(self):
        for semaphore in self.semaphores:
            semaphore.check_idle("when the kernel ends")
