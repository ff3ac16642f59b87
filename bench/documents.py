"""Packed documents and .npy files. Needs the standard library only."""

import array
import ast
import math
import struct
import sys


class Mt19937_64:
    """The same random engine as std::mt19937_64 of C++."""

    def __init__(self, seed):
        mask = (1 << 64) - 1
        self.state = [seed & mask]
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append(
                (6364136223846793005 * (last ^ (last >> 62)) + i) & mask
            )
        self.at = 312

    def draw(self):
        s = self.state
        if self.at == 312:
            for i in range(312):
                x = (s[i] & ~0x7FFFFFFF) | (s[(i + 1) % 312] & 0x7FFFFFFF)
                odd = 0xB5026F5AA96619E9 if x & 1 else 0
                s[i] = s[(i + 156) % 312] ^ (x >> 1) ^ odd
            self.at = 0
        x = s[self.at]
        self.at += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)


def lognormal_ids(mean, seed, tokens):
    """The ids of `tessera plan --docs lognormal:mean=MEAN,seed=SEED`."""
    engine = Mt19937_64(seed)

    def uniform():
        return ((engine.draw() >> 11) + 1) * 2.0**-53

    mu = math.log(mean) - 0.5
    ids = array.array("i")
    while len(ids) < tokens:
        radius = math.sqrt(-2 * math.log(uniform()))
        z = radius * math.cos(2 * math.pi * uniform())
        n = int(min(max(math.floor(math.exp(mu + z)), 1), tokens - len(ids)))
        ids.extend([ids[-1] + 1 if ids else 0] * n)
    return ids


def write_npy(path, ids):
    """Writes ids as an .npy file, int32 [tokens]."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(ids)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    if sys.byteorder == "big":
        ids = array.array("i", ids)
        ids.byteswap()
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
        out.write(header.encode() + ids.tobytes())


def read_classes(path):
    """Reads a uint8 matrix from an .npy file: (rows, columns, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path} is no .npy of version 1")
    end = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:end].decode())
    if header["descr"] != "|u1" or header["fortran_order"]:
        raise ValueError(f"{path} must hold uint8 in C order, found {header}")
    rows, columns = header["shape"]
    if len(data) - end != rows * columns:
        raise ValueError(f"{path} holds {len(data) - end} bytes for {header}")
    return rows, columns, data[end:]
