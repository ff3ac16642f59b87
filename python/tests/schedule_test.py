"""`ts.schedule` gives what the program says of a batch's TPU kernel."""

import ast
import inspect
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest
import tessera as ts
from tessera._launch import program

needs_libtpu = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import libtpu"],
                   capture_output=True).returncode != 0,
    reason="libtpu is not installed")


def packed():
    ids = np.repeat(np.arange(4, dtype=np.int32), 512)
    return ts.plan(ts.causal & ts.documents, q_len=2048, doc_ids=ids,
                   tile=(256, 256))


@needs_libtpu
@pytest.mark.parametrize("more, flags", [
    ({}, []), ({"backward": True}, ["--backward"]),
    ({"backward": True, "dtype": "f32", "query_chunk": 512},
     ["--backward", "--dtype", "f32", "--query-chunk", "512"])])
def test_it_is_what_the_program_says(more, flags):
    batch = packed()
    found = ts.schedule(batch, heads=4, kv_heads=2, softcap=30.0,
                        tiles_per_pass=1, **more)
    asked = [program(), "schedule", "--mask", "causal & documents", "--q-len", "2048",
             "--docs", "lengths:512,512,512,512", "--tile", "256x256",
             "--heads", "4", "--kv-heads", "2", "--softcap", "30",
             "--tiles-per-pass", "1", "--json", *flags]
    said = subprocess.run(asked, text=True, check=True, stdout=subprocess.PIPE)
    assert found.fields == json.loads(said.stdout)
    assert found.json() == json.dumps(found.fields)
    assert found.tile == (256, 256) and found.tiles_per_pass == 1
    assert found.cycles > found.cycles_per_tile > 0
    assert repr(found).startswith("Schedule(v6e:1x1, ")
    xml.etree.ElementTree.fromstring(found._repr_html_())


@needs_libtpu
def test_each_call_compiles_anew():
    batch = packed()
    one, two = (ts.schedule(batch, tiles_per_pass=n) for n in (1, 2))
    assert one.cycles != two.cycles


def test_its_arguments_are_those_of_compile():
    (said, *_), = ts.compile.__nb_signature__
    of = ast.parse(re.sub(r"\\\d+", "0", said) + ": ...").body[0].args
    assert {a.arg for a in of.args + of.kwonlyargs} == set(
        inspect.signature(ts.schedule).parameters)


def test_a_batch_is_a_batch():
    for other in (3, None, packed):
        with pytest.raises(ts.TesseraError) as e:
            ts.schedule(other)
        assert str(e.value) == ("[python] batch must be a tessera.Batch, found "
                                + type(other).__name__)


@pytest.mark.parametrize("given, rule", [
    ({"heads": 0}, r"^\[cli\] --heads must be from 1"),
    ({"target": "v9"}, r"^\[schedule\] a target must be of a known chip"),
    ({"softcap": float("nan")}, r"^\[cli\] --softcap must be a finite"),
    ({"tiles_per_pass": 9}, r"^\[cli\] --tiles-per-pass must be"),
    ({"dtype": "f8"}, r"^\[.*dtype must be"),
    ({"query_chunk": 0}, r"^\[cli\] --query-chunk must be"),
    ({"lowering_reason": "why"}, r"^\[mosaic\] a lowering reason goes with"),
])
def test_what_the_program_refuses_is_our_error(given, rule):
    with pytest.raises(ts.TesseraError, match=rule):
        ts.schedule(packed(), **given)
