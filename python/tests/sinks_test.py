"""`ts.sink_gradients` against central differences in float64, and what it
refuses."""

import ml_dtypes
import numpy as np
import pytest
import tessera as ts

SHAPE = (2, 3, 5, 4)                      # batch, heads, q_len, dim
HALF = 2.0**-24                           # half a unit of float32
DEAD = (1, 2, 3)                          # the query without a legal key


def arrays(seed):
    """out, lse and sink logits as attention gives them, and gradients of the joined
    output and the lse. All are exact in float64."""
    rng = np.random.default_rng(seed)
    out = rng.standard_normal(SHAPE, np.float32)
    lse = rng.standard_normal(SHAPE[:3], np.float32)
    out[DEAD], lse[DEAD] = 0, -np.inf
    dout = rng.standard_normal(SHAPE, np.float32)
    dlse = rng.standard_normal(SHAPE[:3], np.float32)
    return out, lse, np.array([-1, 0.5, 3], np.float32), dout, dlse


def loss(out, lse, sinks, dout, dlse):
    """A loss with these gradients with respect to the joined output and the lse."""
    joined = out / (1 + np.exp(sinks[:, None] - lse))[..., None]
    live = np.isfinite(lse)
    return (dout * joined).sum() + (dlse[live] * lse[live]).sum()


def difference(given, number, at, step):
    """The central difference with respect to one element of out, lse or sinks."""
    ends = []
    for way in (step, -step):
        moved = [a.astype(np.float64) for a in given]
        moved[number][at] += way
        ends.append(loss(*moved))
    return (ends[0] - ends[1]) / (2 * step)


def sizes(out, lse, sinks, dout, dlse):
    """The magnitudes that float32 roundings of each gradient are relative to: the
    result, and the joined output, which was rounded before."""
    share = 1 / (1 + np.exp(sinks[:, None] - lse))
    joined = np.abs(out) * share[..., None]
    moved = (1 - share) * (np.abs(dout) * joined).sum(-1)
    return (np.abs(dout) * share[..., None], np.abs(dlse) + 2 * moved,
            2 * moved.sum((0, 2)))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_sink_gradients_are_central_differences(layout):
    given = arrays(3)
    out, lse, sinks, dout, dlse = given
    turn = (lambda a: a) if layout == "bhsd" else (
        lambda a: np.ascontiguousarray(a.swapaxes(1, 2)))
    joined = ts.join_sinks(turn(out), lse, sinks, layout=layout)
    got = ts.sink_gradients(joined, lse, sinks, turn(dout), dlse, layout=layout)
    assert [a.shape for a in got] == [joined.shape, lse.shape, sinks.shape]
    assert all(a.dtype == np.float32 for a in got)
    got = [turn(got[0]), *got[1:]]
    # The roundings of the sum are divided by the step.
    step, terms = 2.0**-12, 2 * dout.size
    whole = (np.abs(dout * out).sum() +
             np.abs(dlse * lse)[np.isfinite(lse)].sum())
    of_sum = terms * 2.0**-52 * whole / step
    rounded = [HALF * s for s in sizes(*[a.astype(np.float64) for a in given])]
    checked = 0
    for number, gradient in enumerate(got):
        for at in np.ndindex(gradient.shape):
            if number < 2 and at[:3] == DEAD:
                continue
            want = difference(given, number, at, step)
            # Its error is below its change when the step is doubled.
            bound = (abs(difference(given, number, at, 2 * step) - want) +
                     rounded[number][at] + of_sum)
            assert abs(float(gradient[at]) - want) <= bound, (number, at)
            assert bound < 1e-4, (number, at)     # the bound is small
            checked += 1
    assert checked == sum(a.size for a in got) - SHAPE[-1] - 1


def test_a_query_without_a_key_moves_nothing():
    out, lse, sinks, dout, dlse = arrays(4)
    dout[DEAD] = np.nan
    joined = ts.join_sinks(out, lse, sinks)
    by_out, by_lse, by_sinks = ts.sink_gradients(joined, lse, sinks, dout, dlse)
    assert (by_out[DEAD] == 0).all() and by_lse[DEAD] == dlse[DEAD]
    for a in (by_out, by_lse, by_sinks):
        assert np.isfinite(a).all()
    # Without dlse the result is that of zeros.
    without = ts.sink_gradients(joined, lse, sinks, dout)
    zeros = ts.sink_gradients(joined, lse, sinks, dout, np.zeros_like(dlse))
    for a, b in zip(without, zeros):
        assert (a == b).all()
    assert not (without[1] == by_lse).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_gradients_by_the_output_have_its_dtype(dtype):
    out, lse, sinks, dout, _ = arrays(5)
    out, dout = out.astype(dtype), dout.astype(dtype)
    joined = ts.join_sinks(out, lse, sinks)
    by_out, by_lse, by_sinks = ts.sink_gradients(joined, lse, sinks, dout)
    assert by_out.dtype == dtype
    assert by_lse.dtype == by_sinks.dtype == np.float32
    share = 1 / (1 + np.exp(sinks[:, None].astype(np.float64) - lse))
    want = dout.astype(np.float64) * share[..., None]
    unit = float(ml_dtypes.finfo(dtype).eps)
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    assert (np.abs(by_out.astype(np.float64) - want) <=
            np.maximum(unit / 2 * (1 + 2**-20) * np.abs(want), least)).all()


def test_joined_is_out_itself_or_apart_from_it():
    out, lse, sinks, *_ = arrays(7)
    want = ts.join_sinks(out, lse, sinks)
    two = np.zeros((2, *SHAPE), np.float32)
    two[0] = out
    assert (ts.join_sinks(two[0], lse, sinks, joined=two[1]) == want).all()
    assert (ts.join_sinks(two[0], lse, sinks, joined=two[0]) == want).all()
    longer = np.zeros((*SHAPE[:2], SHAPE[2] + 1, SHAPE[3]), np.float32)
    for given, joined in [(longer[:, :, :-1], longer[:, :, 1:]),
                          (longer[:, :, 1:], longer[:, :, :-1]),
                          (longer[:, :, 1:], longer[:, :, :0:-1]),
                          (out, out[::-1])]:
        with pytest.raises(ts.TesseraError,
                           match="^.sinks. joined must be out itself or"):
            ts.join_sinks(given, lse, sinks, joined=joined)


def test_what_does_not_fit_is_refused():
    out, lse, sinks, dout, dlse = arrays(6)
    few = lse[:, :2].copy()
    for refused, words in [
            (lambda: ts.sink_gradients(out, few, sinks, dout),
             r"lse must have the shape \["),
            (lambda: ts.sink_gradients(out, lse.swapaxes(1, 2).copy(), sinks,
                                       dout), r"lse must have the shape \["),
            (lambda: ts.sink_gradients(out, lse, sinks[:2], dout),
             r"sink_logits must have the shape \[3\], found \[2\]"),
            (lambda: ts.sink_gradients(out, lse, sinks, dout, few),
             r"dlse must have the shape \["),
            (lambda: ts.sink_gradients(out, lse, sinks, dout,
                                       lse.swapaxes(1, 2).copy()),
             r"dlse must have the shape \["),
            (lambda: ts.sink_gradients(out, lse, sinks, dout[:, :2].copy()),
             r"^\[sinks\] dout must be there"),
            (lambda: ts.sink_gradients(out, lse, sinks, dout.astype(np.float16)),
             r"^\[sinks\] dout must be there"),
            (lambda: ts.sink_gradients(out, lse.astype(np.float64), sinks, dout),
             "lse"),
            (lambda: ts.sink_gradients(out, lse, sinks, dout, layout="sbhd"),
             "layout"),
    ]:
        with pytest.raises(ts.TesseraError, match=words) as e:
            refused()
        assert "\n" not in str(e.value)
