"""Batches over a mesh: the report of `ts.shard`, and sessions with a mesh compared
with the NumPy oracle."""

import pickle

import judge
import numpy as np
import oracle
import plugins
import pytest
import tessera as ts

LENGTH, HEADS, KV_HEADS, DIM, TILE = 100, 4, 2, 16, 8


def packed(seed=0, batch=1):
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 5, (batch, LENGTH)), 1).astype(np.int32)
    made = ts.plan(ts.causal & ts.documents, q_len=LENGTH, batch=batch,
                   doc_ids=ids, tile=(TILE, TILE))
    legal = np.stack([oracle.legal(("and", ("causal",), ("documents",)), LENGTH,
                                   LENGTH, row) for row in ids])
    draw = lambda heads: rng.standard_normal(
        (batch, heads, LENGTH, DIM), np.float32)
    return made, legal, draw(HEADS), draw(KV_HEADS), draw(KV_HEADS), draw(HEADS)


SIZES = dict(heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)


@pytest.mark.parametrize("balance", ["contiguous", "headtail", "rows", "tasks"])
def test_what_shards_say(balance):
    made, legal, *_ = packed(batch=2)
    shards = ts.shard(made, "data=2,seq=3", balance=balance, dtype="f32",
                      **SIZES)
    assert len(shards) == 6 and shards.mesh == "data=2,seq=3"
    assert shards.balance == balance and shards.batch is made
    side = -(-LENGTH // TILE)
    padded = np.pad(legal, ((0, 0), (0, side * TILE - LENGTH),
                            (0, side * TILE - LENGTH)))
    active = padded.reshape(2, side, TILE, side, TILE).any((2, 4))
    assert sum(shards.steps) == active.sum()
    most, mean = max(shards.steps), active.sum() / 6
    assert shards.work_max_over_mean == pytest.approx(most / mean)
    every = {(b, t) for b in range(2) for t in range(side)}
    for tiles in shards.query_tiles, shards.key_tiles:
        assert sorted(map(tuple, np.concatenate(tiles))) == sorted(every)
    held = max(len(t) for t in shards.query_tiles)
    assert shards.tokens_max_over_mean == pytest.approx(held / (2 * side / 6))
    assert shards.kv_tiles.shape == (3, 3)
    assert (np.diag(shards.kv_tiles) == 0).all()
    for way in shards.forward, shards.backward:
        assert way["busiest_bytes"] <= way["needed_bytes"] <= way["sent_bytes"]
    q = next(s for s in shards.specs if s["name"] == "q")
    assert q["axes"] == ["data", "", "seq", ""]
    assert repr(shards).startswith(f"Shards(data=2,seq=3, {balance}: work ")
    assert shards._repr_svg_().endswith("</svg>\n")
    for backward in False, True:
        assert "sdy.manual_computation" in shards.program_text(backward)
    again = ts.shard(made, "data=2,seq=3", balance=balance, dtype="f32", **SIZES)
    assert again.contract == shards.contract
    assert again.fingerprint == shards.fingerprint


def test_less_travels_where_shards_may_be_less_even():
    lengths = [700, 90, 300, 820, 60, 410, 96, 548, 1072]
    ids = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    made = ts.plan("causal & documents", q_len=4096, doc_ids=ids, tile=(16, 16))
    of = lambda **words: ts.shard(made, "seq=4", **words)
    even, loose = of(), of(evenness="work=3,tokens=3")
    assert even.evenness == of(evenness="").evenness == "work=1.05,tokens=1.02"
    assert loose.evenness == "work=3,tokens=3"
    assert of(balance="contiguous").evenness == ""
    assert even.tokens_max_over_mean <= 1.02 < loose.tokens_max_over_mean <= 3
    assert loose.work_max_over_mean <= 3
    assert loose.forward["needed_bytes"] < even.forward["needed_bytes"]
    assert loose.least_needed_bytes <= loose.forward["needed_bytes"]
    again = pickle.loads(pickle.dumps(loose))
    assert again.evenness == loose.evenness
    assert again.forward == loose.forward
    for rule, call in [
            ("evenness of work must be 1 to 1000, found '0.9'",
             lambda: of(evenness="work=0.9")),
            ("must be of work or tokens", lambda: of(evenness="rows=2")),
            ("evenness goes with a balance that seeks it, rows or tasks, found "
             "headtail", lambda: of(balance="headtail", evenness="work=2")),
            ("go with a mesh, found none",
             lambda: ts.Session("xla", evenness="work=2")),
            *(("go with a mesh, found none",
               lambda words=words: ts.Session("cpu", **words))
              for words in (dict(balance="tasks"), dict(exchange="gather"),
                            dict(uneven=True)))]:
        with pytest.raises(ts.TesseraError, match=rule):
            call()


def test_work_counts_tiles_by_their_class():
    made = ts.plan(ts.causal, q_len=128, tile=(16, 16))
    of = lambda **words: ts.shard(made, "seq=2", balance="contiguous", **words)
    shards = of(work="partial=9")
    assert shards.work == "partial=9,full=1" and of().work == "partial=1,full=1"
    # Each shard has four rows. The last tile of a row is partial; the 0 to 7 tiles
    # before it are full.
    first, second = 4 * 9 + 6, 4 * 9 + 22
    assert shards.work_max_over_mean == 2 * second / (first + second)
    again = pickle.loads(pickle.dumps(shards))
    assert again.work == shards.work
    assert again.work_max_over_mean == shards.work_max_over_mean
    assert shards.contract == of().contract  # the work of a tile is in no contract
    for words, call in [
            ("work of a full tile must be 1 to 1048576, found '0'",
             lambda: of(work="full=0")),
            ("must be of partial or full", lambda: of(work="none=1")),
            ("go with a mesh, found none",
             lambda: ts.Session("xla", work="full=2"))]:
        with pytest.raises(ts.TesseraError, match=words):
            call()


def test_a_ragged_exchange_sends_what_it_must():
    made, *_ = packed(batch=2)
    shards = ts.shard(made, "data=2,seq=3", exchange="ragged", **SIZES)
    assert shards.exchange == "ragged"
    assert ts.shard(made, "data=2,seq=3", **SIZES).exchange == "rounds"
    for way in shards.forward, shards.backward:
        assert way["needed_bytes"] == way["sent_bytes"] <= way["capacity_bytes"]
    text = shards.program_text()
    assert "ragged_all_to_all" in text and "collective_permute" not in text
    assert pickle.loads(pickle.dumps(shards)).contract == shards.contract


def test_a_gradient_of_the_log_sum_exp_is_counted():
    made, *_ = packed(batch=2)
    plain, more = (ts.shard(made, "data=2,seq=3", balance="tasks", dlse=dlse,
                            **SIZES) for dlse in (False, True))
    assert plain.forward == more.forward and plain.contract == more.contract
    for of in "needed_bytes", "sent_bytes", "busiest_bytes":
        assert plain.backward[of] < more.backward[of]
    assert pickle.loads(pickle.dumps(more)).backward == more.backward


def test_a_gather_is_chosen_where_rounds_send_as_much():
    made, *_ = packed(batch=2)
    asked = ts.shard(made, "data=2,seq=3", exchange="gather", **SIZES)
    assert "all_gather" in asked.program_text()
    room = "rows=9,steps=128,kv=9:9"
    under = {way: ts.shard(made, "data=2,seq=3", exchange=way, ceilings=room,
                           **SIZES) for way in ("auto", "gather", "rounds")}
    assert under["auto"].exchange == under["gather"].exchange == "gather"
    assert under["auto"].contract == under["gather"].contract
    assert under["auto"].contract != under["rounds"].contract
    again = pickle.loads(pickle.dumps(under["auto"]))
    assert again.exchange == "gather" and again.contract == under["auto"].contract


def test_an_open_exchange_is_ragged_for_a_tpu():
    made, *_ = packed(batch=2)
    of = lambda **more: ts.shard(made, "data=2,seq=3", **SIZES, **more)
    chosen = of(exchange="auto", target="v6e")
    assert chosen.exchange == "ragged"
    assert chosen.contract == of(exchange="ragged").contract
    assert of(exchange="rounds", target="v6e").contract == of().contract
    again = pickle.loads(pickle.dumps(chosen))
    assert again.exchange == "ragged" and again.contract == chosen.contract
    with pytest.raises(ts.TesseraError, match="found 'v9'"):
        of(target="v9")


NO_AXIS = r"\[mesh\] an axis must be one of data, head, seq, copy, found 'foo'"


def test_refusals():
    made, *_ = packed()
    for words, call in [
            ("name=size", lambda: ts.shard(made, "seq")),
            ("balance must be", lambda: ts.shard(made, "seq=2", balance="fair")),
            ("exchange must be",
             lambda: ts.shard(made, "seq=2", exchange="ring")),
            ("divide", lambda: ts.shard(made, "head=3", **SIZES)),
            ("dtype must be", lambda: ts.shard(made, "seq=2", dtype="int8")),
            ("lane xla or mosaic, found cpu",
             lambda: ts.Session("cpu", mesh="seq=2")),
            ("name=size", lambda: ts.Session("xla", mesh="2")),
            ("max_compiles must be 0", lambda: ts.Session("xla", max_compiles=-1)),
            ("of rows, steps, kv or q, found 'x=1'",
             lambda: ts.Session("xla", mesh="seq=2", ceilings="x=1")),
            (NO_AXIS, lambda: ts.shard(made, "foo=2")),
            (NO_AXIS, lambda: ts.Session("xla", mesh="seq=2,foo=2"))]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            call()
        assert "\n" not in str(e.value)


@plugins.needs("lammps_jax_pjrt_cpu")
def test_what_is_of_tpus_is_refused_on_a_cpu():
    with pytest.raises(ts.TesseraError, match="ragged exchange must be on a T"):
        # As many devices as in the tests below, since a process must open its
        # largest number first.
        ts.Session("xla", mesh="head=2,seq=3", exchange="ragged")
    with pytest.raises(ts.TesseraError, match="a TPU must be there"):
        ts.Session("mosaic", mesh="head=2,seq=3")


@plugins.needs("lammps_jax_pjrt_cpu")
@pytest.mark.parametrize("lane, balance", [("xla", "rows"), ("xla", "tasks"),
                                           (None, "rows")])
def test_a_session_over_a_mesh(lane, balance):
    made, legal, q, k, v, dout = packed(seed=1)
    session = ts.Session(lane, mesh="head=2,seq=3", balance=balance)
    ready = session.prepare(made, backward=True, **SIZES)
    assert ready.lane == "xla"
    saved = ready.forward(q, k, v)
    got = [saved.out, saved.lse, *ready.backward(saved, dout)[:3]]
    judge.check_all(got, judge.attention(q, k, v, legal, dout=dout))


@plugins.needs("lammps_jax_pjrt_cpu")
def test_batches_under_ceilings_share_a_program():
    made, legal, q, k, v, dout = packed(seed=1)
    wide = ts.shard(made, "head=2,seq=3", heads=SIZES["heads"],
                    kv_heads=SIZES["kv_heads"], head_dim=SIZES["head_dim"])
    assert wide.ceilings.startswith("rows=")
    room = {part.split("=")[0]: part.split("=")[1].split(":")
            for part in wide.ceilings.split(",")}
    most = ",".join(f"{name}=" + ":".join(str(max(1, int(n)) * 4) for n in ns)
                    for name, ns in room.items())
    session = ts.Session("xla", mesh="head=2,seq=3", ceilings=most,
                         max_compiles=1)
    compiles = 0
    for seed in range(1, 5):
        made, legal, q, k, v, dout = packed(seed=seed)
        ready = session.prepare(made, **SIZES)
        saved = ready.forward(q, k, v)
        compiles += ready.counters()["compiles"]
        judge.check_all([saved.out, saved.lse],
                        judge.attention(q, k, v, legal)[:2])
    assert compiles == 1
    with pytest.raises(ts.TesseraError, match="compiles must be at most 1"):
        session.prepare(made, backward=True, **SIZES)
    with pytest.raises(ts.TesseraError, match="may have 1 steps, found"):
        ts.Session("xla", mesh="head=2,seq=3",
                   ceilings="steps=1").prepare(made, **SIZES)
