"""Errors of the Python package, in the form of the library's errors."""

from typing import NoReturn

from . import _core


def refuse(where: str, rule: str, found: object) -> NoReturn:
    raise _core.TesseraError(f"[{where}] {rule}, found {found}")
