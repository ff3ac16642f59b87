#!/usr/bin/env python3
"""Draws the results of `tessera-bench attention`: our times and the best
peer's.

    bench/plot_attention.py bench/results/CPU/attention.json [-o FILE.svg]
        [--tokens 4096] [--head-dim 128] [--threads 2]

It draws one length, head dim and number of threads, by default the first of
each in the file. Needs the standard library only. By default the picture is
written beside the results.
"""

import html
import sys

from plot_svg import plot, text

WIDTH, LEFT, RIGHT, TOP = 760, 150, 190, 88
BAR, ROW, GROUP = 13, 40, 34
CASES = {
    "full": "full",
    "causal": "causal",
    "softcap": "causal, softcap 30",
    "window": "window 1024",
    "documents": "8 documents",
    "both": "documents, window",
}

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #6e7781 }
  .value { font-size: 11px; font-weight: 600 }
  .group { font-weight: 600 }
  .grid { stroke: #d0d7de }
  .peak { stroke: #cf222e; stroke-dasharray: 4 3 }
  .ours { fill: #1a7f64 }
  .peer { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .peak { stroke: #f85149 }
    .ours { fill: #3fb68b }
    .peer { fill: #656c76 }
  }
"""


def chosen(result, flags):
    """The rows of one length, head dim and number of threads."""
    rows = [r for r in result["rows"] if r["case"] in CASES and r["ours"]]
    keys = (("q_len", flags.tokens), ("head_dim", flags.head_dim))
    for key, asked in keys + (("threads", flags.threads),):
        if rows and asked is None:
            asked = rows[0][key]
        rows = [r for r in rows if r[key] == asked]
    if not rows:
        sys.exit("no row of the file is measured and as asked")
    return rows


def groups_of(rows):
    """[(dtype, direction, rows)], in the order of the file."""
    groups = {}
    for row in rows:
        groups.setdefault((row["dtype"], row["direction"]), []).append(row)
    return [(dtype, way, part) for (dtype, way), part in groups.items()]


def best_of(row):
    for peer in row["peers"]:
        if peer["peer"] == row["best_peer"]:
            return peer
    return None


def round_step(most):
    """A distance of grid lines, for four to eight of them."""
    for step in (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000):
        if most / step <= 8:
            return step
    return 10000


def line(x, y0, y1, kind):
    return (
        f'<line x1="{x:.1f}" y1="{y0:.1f}" x2="{x:.1f}" y2="{y1:.1f}" '
        f'class="{kind}"/>'
    )


def bar(y, width, kind):
    return (
        f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" '
        f'rx="2" class="{kind}"/>'
    )


def draw(result, rows):
    groups = groups_of(rows)
    first = rows[0]
    (peaks,) = [
        p for p in result["peaks"] if p["threads"] == first["threads"]
    ]
    most = max(
        speed
        for r in rows
        for speed in (r["ours"]["gflops"], (best_of(r) or r["ours"])["gflops"])
    )
    limits = {"f32": peaks["fma_gflops"], "bf16": peaks["bf16_dot_gflops"]}
    most = max([most] + [limits[dtype] for dtype, _, _ in groups])
    step = round_step(most)
    scale = (WIDTH - LEFT - RIGHT) / most
    bottom = TOP + sum(GROUP + ROW * len(part) for _, _, part in groups)
    height = bottom + 30
    threads = first["threads"]
    title = (
        f"Attention, {first['q_len']:,} tokens, {first['heads']} heads of "
        f"{first['head_dim']}, useful GFLOP/s"
    )
    where = (
        f"{result['cpu']}, {result['isa']}, {threads} "
        f"thread{'s' if threads != 1 else ''}"
    )
    if not result["quiet"]:
        where += "; others were at work on the machine"
    legend = "green: Tessera; grey: the best peer; dashed: the measured peak"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{html.escape(title)}">',
        f"<style>{STYLE}</style>",
        text(12, 24, title, "title"),
        text(12, 42, where, "small"),
        text(12, 58, legend, "small"),
    ]
    for tick in range(0, int(most) + 1, step):
        out.append(line(LEFT + tick * scale, TOP - 10, bottom, "grid"))
        out.append(
            text(LEFT + tick * scale, bottom + 16, str(tick), "small", "middle")
        )
    y = TOP
    for dtype, way, part in groups:
        out.append(text(12, y + 14, f"{dtype}, {way}", "group"))
        y += GROUP - 10
        if limits[dtype] > 0:
            at = LEFT + limits[dtype] * scale
            out.append(line(at, y - 6, y + ROW * len(part), "peak"))
        for row in part:
            ours, peer = row["ours"]["gflops"], best_of(row)
            out.append(text(LEFT - 10, y + 17, CASES[row["case"]], "", "end"))
            out.append(bar(y, ours * scale, "ours"))
            words = f"{ours:.0f}"
            if row["ratio"]:
                words += f", {row['ratio']:.2f} times"
            out.append(text(LEFT + ours * scale + 6, y + 11, words, "value"))
            if peer:
                width = peer["gflops"] * scale
                out.append(bar(y + BAR + 2, width, "peer"))
                words = f"{peer['gflops']:.0f} {peer['peer']}"
            else:
                width, words = 0, "no peer measured"
            out.append(text(LEFT + width + 6, y + BAR + 13, words, "small"))
            y += ROW
        y += 10
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    plot(
        __doc__,
        lambda result, flags: draw(result, chosen(result, flags)),
        numbers=("tokens", "head-dim", "threads"),
    )
