#!/usr/bin/env python3
"""Draws the results of silicon/compare.py: measured over predicted time, by
shape.

    bench/plot_silicon.py bench/results/v6e/silicon.json [-o FILE.svg]

Needs the standard library only. By default the picture is written beside the
results.
"""

import html
import math

from plot_svg import plot, text

WIDTH, LEFT, RIGHT, TOP, HEIGHT = 760, 56, 24, 84, 300
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #6e7781 }
  .grid { stroke: #d0d7de }
  .band { fill: #1a7f64; opacity: 0.1 }
  .bias { stroke: #1a7f64; stroke-width: 1.5 }
  .d64 { fill: #0969da; stroke: #0969da }
  .d128 { fill: #1a7f64; stroke: #1a7f64 }
  .d192 { fill: #8250df; stroke: #8250df }
  .d256 { fill: #bc4c00; stroke: #bc4c00 }
  .hollow { fill: none; stroke-width: 1.6 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
  }
"""


def mark(x, y, row):
    """The mark of a row: a square if causal, else a circle; hollow with
    residuals."""
    kind = f'd{row["shape"][3]}' + " hollow" * row["residuals"]
    if row["causal"]:
        return (f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" '
                f'height="7" class="{kind}">{note(row)}</rect>')
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{kind}">'
            f"{note(row)}</circle>")


def note(row):
    words = (f"{row['name']}: {row['measured_ms']} ms measured, "
             f"{row['predicted_ms']} predicted, {row['ratio']}")
    return f"<title>{html.escape(words)}</title>"


def draw(result):
    rows = result["rows"]
    shapes = sorted({(r["shape"][1], r["shape"][3]) for r in rows})
    low = math.floor(min(r["ratio"] for r in rows) * 20) / 20
    high = math.ceil(max(r["ratio"] for r in rows) * 20) / 20
    low = min(low, 1.0)
    bottom = TOP + HEIGHT

    def y(ratio):
        return bottom - (ratio - low) / (high - low) * HEIGHT

    step = (WIDTH - LEFT - RIGHT) / len(shapes)
    of = result["all"]
    title = (f"tokamax attention on {result['chip']}: time measured over time "
             "predicted")
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{bottom + 76}" width="{WIDTH}" height="{bottom + 76}" role="img" '
        f'aria-label="{html.escape(title)}">',
        f"<style>{STYLE}</style>",
        text(12, 24, title, "title"),
        text(12, 42, f"{of['rows']} programs; median {of['bias']:.3f} (line), "
             f"5th to 95th percentile {of['p5']:.3f} to {of['p95']:.3f} "
             "(band)", "small"),
        text(12, 60, "circle: full, square: causal, hollow: gives the log-sum-"
             "exp and the maximum too; numbers and colours: head dim", "small"),
        f'<rect x="{LEFT}" y="{y(of["p95"]):.1f}" '
        f'width="{WIDTH - LEFT - RIGHT}" '
        f'height="{y(of["p5"]) - y(of["p95"]):.1f}" class="band"/>',
    ]
    ticks = round((high - low) / 0.05)
    for i in range(ticks + 1):
        at = low + i * 0.05
        out.append(f'<line x1="{LEFT}" y1="{y(at):.1f}" x2="{WIDTH - RIGHT}" '
                   f'y2="{y(at):.1f}" class="grid"/>')
        out.append(text(LEFT - 8, y(at) + 4, f"{at:.2f}", "small", "end"))
    out.append(f'<line x1="{LEFT}" y1="{y(of["bias"]):.1f}" '
               f'x2="{WIDTH - RIGHT}" y2="{y(of["bias"]):.1f}" class="bias"/>')
    for i, (tokens, dim) in enumerate(shapes):
        middle = LEFT + step * (i + 0.5)
        out.append(text(middle, bottom + 18, str(dim), "small", "middle"))
        if i == 0 or shapes[i - 1][0] != tokens:
            width = step * sum(s[0] == tokens for s in shapes)
            out.append(text(middle - step / 2 + width / 2, bottom + 36,
                            f"{tokens:,} tokens", "", "middle"))
        mine = [r for r in rows if (r["shape"][1], r["shape"][3]) ==
                (tokens, dim)]
        mine.sort(key=lambda r: (r["residuals"], r["causal"]))
        for n, row in enumerate(mine):
            aside = (n - (len(mine) - 1) / 2) * 8
            out.append(mark(middle + aside, y(row["ratio"]), row))
    out.append(text(12, bottom + 62, "Times: " + result["source"]["repository"]
                    + " at " + result["source"]["commit"][:7], "small"))
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    plot(__doc__, lambda result, flags: draw(result))
