#!/usr/bin/env python3
"""Draws the results of plan_peers.py: one bar each, on a logarithmic scale.

    bench/plot_plan.py bench/results/CPU/plan_peers.json [-o FILE.svg]

Needs the standard library only. By default the picture is written beside the
results.
"""

import html
import math

from plot_svg import plot, text

NAMES = {
    "jax-splash": ("JAX Splash", "process_mask + process_mask_dkv"),
    "tokamax-splash": ("tokamax Splash", "process_mask + process_mask_dkv"),
    "flex-compiled": ("FlexAttention", "create_block_mask, compiled"),
    "flex-eager": ("FlexAttention", "create_block_mask, eager"),
}
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 226, 118, 62, 44, 22

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #6e7781 }
  .value { font-weight: 600 }
  .grid { stroke: #d0d7de }
  .ours { fill: #1a7f64 }
  .peer { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .ours { fill: #3fb68b }
    .peer { fill: #656c76 }
  }
"""


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def bars_of(result):
    """(name, what, ns, ratio), ours first, then the quickest."""
    ours = result["tessera"]["ns"]
    peers = [r for r in result["peers"] if r["state"] == "measured"]
    bars = [("Tessera", "both worklists", ours, None)]
    for row in sorted(peers, key=lambda r: r["ms"]):
        name, what = NAMES.get(row["peer"], (row["peer"], row["call"]))
        bars.append((name, what, row["ms"] * 1e6, row["ratio"]))
    return bars


def draw(result):
    bars = bars_of(result)
    low = math.floor(math.log10(min(b[2] for b in bars)) - 0.3)
    high = math.ceil(math.log10(max(b[2] for b in bars)))
    height = TOP + ROW * len(bars) + 34
    bottom = TOP + ROW * len(bars)

    def x(ns):
        part = (math.log10(ns) - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    title = (
        f"Planning {result['mask']}, {result['tokens']:,} tokens, "
        f"tile {result['tile']}"
    )
    where = f"{result['cpu']}, {result['cores']} cores; logarithmic scale"
    if not result["quiet"]:
        where += "; others were at work on the machine"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{html.escape(title)}">',
        f"<style>{STYLE}</style>",
        text(12, 24, title, "title"),
        text(12, 42, where, "small"),
    ]
    for power in range(low, high + 1):
        at = x(10.0**power)
        out.append(
            f'<line x1="{at:.1f}" y1="{TOP - 6}" x2="{at:.1f}" '
            f'y2="{bottom}" class="grid"/>'
        )
        out.append(
            text(at, bottom + 18, duration(10.0**power), "small", "middle")
        )
    for i, (name, what, ns, ratio) in enumerate(bars):
        y = TOP + ROW * i
        out.append(text(LEFT - 12, y + 14, name, "name", "end"))
        out.append(text(LEFT - 12, y + 28, what, "small", "end"))
        kind = "peer" if ratio else "ours"
        out.append(
            f'<rect x="{LEFT}" y="{y + 4}" width="{x(ns) - LEFT:.1f}" '
            f'height="{BAR}" rx="3" class="{kind}"/>'
        )
        at = x(ns) + 8
        out.append(text(at, y + 14, duration(ns), "value"))
        if ratio:
            out.append(text(at, y + 28, f"{ratio:,.0f} times ours", "small"))
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    plot(__doc__, lambda result, flags: draw(result))
