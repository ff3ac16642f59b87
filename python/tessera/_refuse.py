"""The package's own errors, in the words of the library's."""

from typing import NoReturn

from . import _core


def refuse(where: str, rule: str, found: object) -> NoReturn:
    raise _core.TesseraError(f"[{where}] {rule}, found {found}")
