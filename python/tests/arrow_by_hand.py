"""An Arrow C stream made with ctypes only: batches of lists of integers."""

import ctypes as c

import numpy as np


class Schema(c.Structure):
    pass


class Array(c.Structure):
    pass


class Stream(c.Structure):
    pass


ReleaseSchema = c.CFUNCTYPE(None, c.POINTER(Schema))
ReleaseArray = c.CFUNCTYPE(None, c.POINTER(Array))
GetSchema = c.CFUNCTYPE(c.c_int, c.POINTER(Stream), c.POINTER(Schema))
GetNext = c.CFUNCTYPE(c.c_int, c.POINTER(Stream), c.POINTER(Array))
GetError = c.CFUNCTYPE(c.c_void_p, c.POINTER(Stream))
ReleaseStream = c.CFUNCTYPE(None, c.POINTER(Stream))

Schema._fields_ = [
    ("format", c.c_char_p), ("name", c.c_char_p), ("metadata", c.c_char_p),
    ("flags", c.c_int64), ("n_children", c.c_int64),
    ("children", c.POINTER(c.POINTER(Schema))), ("dictionary", c.POINTER(Schema)),
    ("release", ReleaseSchema), ("private_data", c.c_void_p)]
Array._fields_ = [
    ("length", c.c_int64), ("null_count", c.c_int64), ("offset", c.c_int64),
    ("n_buffers", c.c_int64), ("n_children", c.c_int64),
    ("buffers", c.POINTER(c.c_void_p)), ("children", c.POINTER(c.POINTER(Array))),
    ("dictionary", c.POINTER(Array)), ("release", ReleaseArray),
    ("private_data", c.c_void_p)]
Stream._fields_ = [
    ("get_schema", GetSchema), ("get_next", GetNext), ("get_last_error", GetError),
    ("release", ReleaseStream), ("private_data", c.c_void_p)]


EXPORTED = []  # never freed: a callback must not be destroyed while it runs


class ByHand:
    """A stream of `batches`. A batch is a dict from column to lists of int64,
    or None, which fails. The stream counts the structs that are released."""

    def __init__(self, batches):
        self.batches = batches
        self.released = 0
        self.kept = []

    def keep(self, x):
        self.kept.append(x)
        return x

    def children(self, kind, parts):
        pointers = (c.POINTER(kind) * len(parts))(*map(c.pointer, parts))
        return self.keep(pointers), self.keep(parts)

    def schema(self, form, name=b"", parts=()):
        out = Schema(format=form, name=name, n_children=len(parts))
        if parts:
            out.children = self.children(Schema, parts)[0]
        out.release = self.release_schema
        return out

    def array(self, length, buffers, parts=()):
        out = Array(length=length, n_buffers=len(buffers), n_children=len(parts))
        out.buffers = self.keep((c.c_void_p * len(buffers))(
            *(None if b is None else self.keep(b).ctypes.data for b in buffers)))
        if parts:
            out.children = self.children(Array, parts)[0]
        out.release = self.release_array
        return out

    def column(self, lists):
        starts = np.cumsum([0] + [len(x) for x in lists]).astype(np.int32)
        values = np.array([v for x in lists for v in x] + [0], np.int64)
        items = self.array(int(starts[-1]), [None, values])
        return self.array(len(lists), [None, starts], [items])

    def __arrow_c_stream__(self, requested_schema=None):
        def release(p):
            self.released += 1
            kind = type(p.contents.release)
            p.contents.release = kind()

        def get_schema(_, out):
            names = list(self.batches[0])
            out[0] = self.schema(b"+s", b"", [
                self.schema(b"+l", n.encode(), [self.schema(b"l", b"item")])
                for n in names])
            return 0

        def get_next(_, out):
            at = self.given
            self.given += 1
            if at == len(self.batches):
                out[0] = Array()
                return 0
            if self.batches[at] is None:
                return 5
            columns = [self.column(x) for x in self.batches[at].values()]
            out[0] = self.array(columns[0].length, [None], columns)
            return 0

        EXPORTED.append(self)
        said = self.keep(c.create_string_buffer(b"the disk is gone"))
        self.given = 0
        self.release_schema = self.keep(ReleaseSchema(release))
        self.release_array = self.keep(ReleaseArray(release))
        stream = self.keep(Stream(
            self.keep(GetSchema(get_schema)), self.keep(GetNext(get_next)),
            self.keep(GetError(lambda _: c.addressof(said))),
            self.keep(ReleaseStream(release))))
        new = c.pythonapi.PyCapsule_New
        new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
        return new(c.addressof(stream), b"arrow_array_stream", None)
