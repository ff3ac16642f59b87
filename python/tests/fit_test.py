"""`ts.fit` gives the program's memory budget of a batch; `Session.warm`."""

import json
import pickle
import subprocess

import numpy as np
import plugins
import pytest
import tessera as ts
from tessera._launch import program

CALL = dict(heads=8, kv_heads=2, head_dim=128, backward=True)


def packed(length=4096, documents=4, **more):
    ids = np.arange(length, dtype=np.int32) // -(-length // documents)
    return ts.plan(ts.causal & ts.documents, q_len=length, doc_ids=ids,
                   tile=(256, 256), **more)


@pytest.mark.parametrize("lane, method", [("xla", "worklist"),
                                          ("xla", "chunked"), ("xla", "dense"),
                                          ("mosaic", "worklist")])
def test_it_is_what_the_program_says(lane, method):
    steps = 512
    found = ts.fit(packed(max_steps=steps), lane=lane, method=method,
                   softcap=30.0, target="v5e", **CALL)
    # ts.fit takes the kernels of sessions, which do not promise finite numbers.
    flags = ["--method", method] if lane == "xla" else ["--numbers", "any"]
    done = subprocess.run(
        [program(), "fit", "--mask", "causal & documents", "--q-len", "4096",
         "--tile", "256", "--max-steps", str(steps), "--heads", "8",
         "--kv-heads", "2", "--softcap", "30", "--target", "v5e", "--backward",
         "--lane", lane, "--json", *flags],
        capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    for name in "lane", "method", "tile":
        del told[name]
    assert found.fields == told
    assert found.fits and found.would_fit == [] and found.error is None
    assert found.needed == told["needed"] <= found.room
    assert found.residuals == told["residuals"] > 0
    found.check()


def test_a_batch_has_its_own_bucket():
    few, many = packed(documents=64), packed(documents=1)
    assert (ts.fit(few, **CALL).needed < ts.fit(many, **CALL).needed)
    assert (ts.fit(packed(documents=64, max_steps=4096), **CALL)
            == ts.fit(packed(documents=1, max_steps=4096), **CALL))


def test_what_does_not_fit_says_what_would():
    batch = ts.plan("causal", q_len=65536, tile=(512, 512))
    large = dict(heads=128, head_dim=128, backward=True, target="v5e")
    over = ts.fit(batch, **large)
    assert not over.fits and over.needed > over.room
    with pytest.raises(ts.TesseraError) as raised:
        over.check()
    assert str(raised.value).startswith(
        "[fit] the backward pass must fit the 15.75 GiB of a v5e device, found")
    assert str(raised.value) == over.error
    heads = next(r for r in over.would_fit if r["change"].startswith("heads"))
    assert ts.fit(batch, **{**large, "heads": heads["fits"]}).fits
    # A mesh axis could leave a chip twice as many heads next; they do not fit.
    assert not ts.fit(batch, **{**large, "heads": 2 * heads["fits"]}).fits


def test_a_mesh_divides_it():
    batch = packed(16384)
    one, four = ts.fit(batch, **CALL), ts.fit(batch, mesh="seq=4", **CALL)
    queries = [next(p["bytes"] for p in b.fields["forward"]["arguments"]
                    if p["name"] == "q") for b in (one, four)]
    assert queries[0] >= 4 * queries[1] * 0.9
    kernels = ts.fit(batch, mesh="seq=4", balance="tasks", lane="mosaic", **CALL)
    assert kernels.fits


def test_sink_telemetry_is_a_program_of_its_own():
    call = dict(lane="mosaic", **CALL)
    alone, with_it = (ts.fit(packed(), sink_telemetry=told, **call)
                      for told in (False, True))
    sinks = with_it.fields.pop("sinks")
    assert [p["name"] for p in sinks["outputs"]][:2] == ["lse", "entropy"]
    assert with_it == alone


def test_a_budget_is_a_value():
    budget = ts.fit(packed(), **CALL)
    again = pickle.loads(pickle.dumps(budget))
    assert again == budget and hash(again) == hash(budget)
    assert again != ts.fit(packed(), **{**CALL, "heads": 4})
    assert json.loads(budget.json()) == budget.fields
    assert repr(budget).startswith("Budget('v6e', 0.") and "fits)" in repr(budget)


def test_what_compiles_has_a_budget():
    """What compiles, with the passes that fit vector memory, has a budget."""
    tried = 0
    for target in "v4", "v5e", "tpu7x":
        for tile in (512, 512), (1024, 1024):
            batch = ts.plan("causal", q_len=4096, tile=tile)
            for dtype in "bf16", "f32":
                call = dict(heads=8, head_dim=64, dtype=dtype, target=target)
                for backward in False, True:
                    try:
                        ts.compile(batch, backward=backward, **call)
                    except ts.TesseraError:
                        break  # no backward kernel without the forward one
                    assert ts.fit(batch, lane="mosaic", backward=backward,
                                  **call).fits
                    tried += 1
    assert tried > 12


@pytest.mark.parametrize("more, rule", [
    (dict(target="v9"), "a chip must be one of v4, v5e, v5p, v6e, tpu7x"),
    (dict(lane="cpu"), "a budget is of lane xla or mosaic, found cpu"),
    (dict(lane="gpu"), "found 'gpu'"),
    (dict(method="flash"), "found 'flash'"),
    (dict(lane="mosaic", method="dense"), "method goes with the lane xla"),
    (dict(mesh="seq=2", method="dense"), "a mesh runs the method 'worklist'"),
    (dict(mesh="seq=0"), "mesh"),
    (dict(ceilings="rows=1"), "go with a mesh, found none"),
    (dict(balance="tasks"), "go with a mesh, found none"),
    (dict(evenness="work=2"), "go with a mesh, found none"),
    (dict(balance="nonsense"), "found 'nonsense'"),
    (dict(exchange="zzz"), "found 'zzz'"),
    (dict(uneven=True), "go with a mesh, found none"),
    (dict(heads=0), "heads"),
    (dict(head_dim=65536, mesh="seq=2"), "head dims must be a multiple of 8"),
    (dict(head_dim=7, mesh="seq=2"), "head dims must be a multiple of 8"),
    (dict(backward=False, dlse=True), "goes with backward"),
    (dict(lowering_reason="why not"), "found one for 256x256"),
    (dict(sink_telemetry=True), "goes with the lane mosaic and no mesh, found xla"),
    (dict(sink_telemetry=True, lane="mosaic", mesh="seq=2"),
     "goes with the lane mosaic and no mesh, found seq=2"),
])
def test_bad_calls_are_refused(more, rule):
    with pytest.raises(ts.TesseraError) as raised:
        ts.fit(packed(), **{**CALL, **more})
    assert rule in str(raised.value)


needs_xla = plugins.needs("xla_cpu_pjrt")
SMALL = dict(heads=2, head_dim=16)


def batches():
    """Six batches of three contracts, two of each."""
    for length in 64, 96, 128, 64, 96, 128:
        yield ts.plan("causal", q_len=length, tile=(32, 32))


@needs_xla
def test_after_warming_nothing_compiles(tmp_path):
    told = []
    for of_disk in False, True:
        session = ts.Session("xla", cache_folder=str(tmp_path))
        report = session.warm(batches(), backward=True, progress=lambda *at:
                              told.append(at), **SMALL)
        found = "disk_hits" if of_disk else "compiles"
        assert report[found] == 6 and report["batches"] == 6
        assert report["contracts"] == 3 and report["ms"] > 0
        assert report["warnings"] == []
        for batch in batches():
            ready = session.prepare(batch, backward=True, **SMALL)
            assert ready.counters()["compiles"] == 0
    assert told == [(1, 3), (2, 3), (3, 3)] * 2


@needs_xla
def test_what_ends_warming():
    session = ts.Session("xla", max_compiles=1)
    with pytest.raises(ts.TesseraError, match="compiles must be at most 1"):
        session.warm(batches(), **SMALL)
    with pytest.raises(ts.TesseraError, match="found int"):
        session.warm([1], **SMALL)

    def stop(done, contracts):
        raise KeyError(done)

    with pytest.raises(KeyError):
        ts.Session("xla").warm(batches(), progress=stop, threads=1, **SMALL)
    assert ts.Session("cpu").warm([], **SMALL)["contracts"] == 0
    # These arguments are refused before any work.
    for more, rule in [(dict(progress=5), "progress must be callable, found int"),
                       (dict(threads=-1), "threads must be 0 or more, found -1"),
                       (dict(dlse=True),
                        r"^\[warm\] dlse goes with backward, found it alone$")]:
        with pytest.raises(ts.TesseraError, match=rule):
            ts.Session("xla").warm(batches(), **SMALL, **more)
    with pytest.raises(ts.TesseraError, match="threads must be 0 or more"):
        ts.Session("cpu", threads=-1)


@needs_xla
def test_what_is_not_kept_is_said():
    session = ts.Session("xla", cache_folder="/proc/self/nowhere")
    assert session.warm(batches(), **SMALL)["warnings"]
