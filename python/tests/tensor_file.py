"""Reads and writes .safetensors files for tests and peers, without a
package."""

import json
import pathlib

import ml_dtypes
import numpy as np

KINDS = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32,
         "F64": np.float64, "BOOL": np.bool_, "I8": np.int8, "I16": np.int16,
         "I32": np.int32, "I64": np.int64, "U8": np.uint8}


def load(path):
    """Arrays by name."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            out[name] = np.frombuffer(
                data[begin:end], KINDS[entry["dtype"]]).reshape(entry["shape"])
    return out


def parameters(path):
    """The parameters of a checkpoint of `tessera train`, without their
    moments."""
    return {name: x for name, x in load(path).items()
            if not name.startswith(("first.", "second."))}


def store(path, arrays):
    kinds = {np.dtype(t): name for name, t in KINDS.items()}
    arrays = {name: np.ascontiguousarray(x) for name, x in arrays.items()}
    header, at = {}, 0
    for name, x in arrays.items():
        header[name] = {"dtype": kinds[x.dtype], "shape": list(x.shape),
                        "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(
            x.tobytes() for x in arrays.values()))


def an_ulp_away(arrays, rng):
    """The float32 arrays, by name, with every number moved to a neighboring
    one."""
    return {name: np.nextafter(
        x, np.float32(np.inf) * rng.choice([-1, 1], x.shape), dtype=np.float32)
        for name, x in arrays.items()}


def apart(moved):
    """How far losses of two programs may be apart, relative, if the last bits
    of all parameters change one by `moved`. It is three times that change plus
    a loss's own last bit: once for each of the two programs, once for what the
    draws miss. It is 256 roundings at most."""
    return np.minimum(3 * (moved + 2.0 ** -23), 256 * 2.0 ** -24)
