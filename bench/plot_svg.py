"""Shared code of plot_*.py: text in an SVG, and the command that draws a
result.

Needs the standard library only.
"""

import argparse
import html
import json
import pathlib


def text(x, y, words, kind="", anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" '
        f'text-anchor="{anchor}">{html.escape(words)}</text>'
    )


def plot(description, draw, numbers=()):
    """Reads flags and a result, and writes the picture `draw(result, flags)`.

    `numbers` are names of further flags, each an integer.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("-o", "--out", type=pathlib.Path, metavar="FILE.svg")
    for name in numbers:
        parser.add_argument(f"--{name}", type=int, metavar="N")
    flags = parser.parse_args()
    result = json.loads(flags.results.read_text(encoding="utf-8"))
    out = flags.out or flags.results.with_suffix(".svg")
    out.write_text(draw(result, flags), encoding="utf-8")
    print(out)
