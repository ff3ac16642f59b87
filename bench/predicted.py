"""Runs `tessera schedule` from scripts. Dumps are kept, so that a program is
compiled once and then predicted for other documents within moments."""

import json
import pathlib
import shutil
import subprocess
import tempfile


def run(command):
    """The output of a command; if it fails, RuntimeError with its last line."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise RuntimeError(words[-1])
    return done.stdout


class Predictor:
    """A folder of dumps, by name. Without a folder they are deleted when the
    process ends."""

    def __init__(self, tessera, folder):
        self.tessera = tessera
        self.temporary = None if folder else tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder or self.temporary.name)

    def has(self, name):
        return (self.folder / name / "done").exists()

    def schedule(self, name, asked, emit=None, program=None):
        """The JSON of `schedule` for the program `name`. The command `emit`
        prints the program, or it is in the file `program`. Without both,
        `asked` describes our own kernel."""
        command = [self.tessera, "schedule", "--json", *asked]
        kept = self.folder / name
        if self.has(name):
            setting = (kept / "done").read_text().split()
            return json.loads(run([*command, *setting, "--dump", kept]))
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)  # of a run that was interrupted
        command += ["--keep", kept]
        if emit:
            program = self.folder / f"{name}.mlir"
            program.write_text(run(emit), encoding="utf-8")
        if program:
            command.append(program)
        told = json.loads(run(command))
        # The setting that a dump of our kernel was compiled with must come with it.
        setting = ""
        if told.get("own") and "--tile" not in asked:
            rows, keys = told["own"]["tile"]
            setting = f"--tile {rows}x{keys} "
            setting += f"--tiles-per-pass {told['own']['tiles_per_pass']}"
        (kept / "done").write_text(setting)
        return told
