"""The notebook's cells run in order and give the outputs that are stored in it.

    python python/tests/notebook_test.py   # stores the outputs again
"""

import ast
import contextlib
import importlib.util
import io
import json
import pathlib

import pytest

NOTEBOOK = (pathlib.Path(__file__).parents[2] / "examples" / "python" /
            "first_look.ipynb")


def run_cell(source, names):
    """The outputs of a cell, as a notebook stores them."""
    code = ast.parse(source)
    shown = None
    if code.body and isinstance(code.body[-1], ast.Expr):
        shown = ast.Expression(code.body.pop().value)
    printed, outputs = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "cell", "exec"), names)
        value = eval(compile(shown, "cell", "eval"), names) if shown else None
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout",
                        "text": printed.getvalue().splitlines(True)})
    if value is not None:
        data = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        outputs.append({"output_type": "execute_result", "metadata": {},
                        "execution_count": None, "data": data})
    return outputs


def run(notebook):
    names = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield cell, run_cell("".join(cell["source"]), names)


def plain(outputs):
    """The text outputs, which do not change with the version of the page."""
    return [out["text"] if "text" in out else out["data"]["text/plain"]
            for out in outputs]


def pictures(outputs):
    return ["".join(out["data"]["text/html"])[:4] for out in outputs
            if "text/html" in out.get("data", {})]


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None,
                    reason="libtpu is not installed")
def test_it_says_what_it_has_stored():
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    shown = []
    for cell, outputs in run(notebook):
        assert plain(outputs) == plain(cell["outputs"])
        assert pictures(outputs) == pictures(cell["outputs"])
        shown += pictures(outputs)
    assert shown == ["<ifr", "<svg"]  # the plan's page, the schedule's picture


if __name__ == "__main__":
    made = json.loads(NOTEBOOK.read_text())
    for number, (cell, outputs) in enumerate(run(made), 1):
        cell["outputs"], cell["execution_count"] = outputs, number
        for out in outputs:
            if "execution_count" in out:
                out["execution_count"] = number
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
