"""bench/mosaic_tiles.py makes rows of its table again: libtpu gives the figures of
the table, and a table with other figures is reported."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "src" / "lanes" / "mosaic" / "settings.inc"
ROWS = ("forward,causal,2048,128", "backward,causal,2048,256")


@unittest.skipUnless(importlib.util.find_spec("libtpu"), "there is no libtpu")
class Tiles(unittest.TestCase):
    def check(self, row, dumps, table=TABLE):
        command = [sys.executable, ROOT / "bench" / "mosaic_tiles.py", "--check",
                   row, "--dumps", dumps, "--table", table]
        if "TESSERA" in os.environ:
            command += ["--tessera", os.environ["TESSERA"]]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                              env={**os.environ, "TESSERA_PYTHON": sys.executable})

    def test_rows_are_made_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for row in ROWS:
                ran = self.check(row, folder)
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            text = TABLE.read_text(encoding="utf-8").splitlines()
            words = ROWS[0].split(",")
            start = "{{k{}, k{}, {}, {},".format(
                words[0].capitalize(), words[1].capitalize(), *words[2:])
            (at,) = [i for i, line in enumerate(text) if line.startswith(start)]
            before, after = text[at].split("// ")
            cycles, rest = after.split(";", 1)
            text[at] = f"{before}// {float(cycles) + 1:.1f};{rest}"
            other = pathlib.Path(folder) / "settings.inc"
            other.write_text("\n".join(text) + "\n", encoding="utf-8")
            self.assertEqual(self.check(ROWS[0], folder, other).returncode, 1)


if __name__ == "__main__":
    unittest.main()
