"""The share of a list of cases that a run takes: TESSERA_CASES and its turn."""

import os


def stride():
    """The odd step through a list for a share such as TESSERA_CASES=30%."""
    text = os.environ.get("TESSERA_CASES", "100%")
    percent = int(text[:-1]) if text.endswith("%") else 100
    return max(100 // max(percent, 1), 1) | 1


def some(cases):
    """The share of cases that TESSERA_CASES asks for, selected by
    TESSERA_CASES_TURN. Without TESSERA_CASES it is all cases."""
    cases = list(cases)
    turn = int(os.environ.get("TESSERA_CASES_TURN") or "0")
    return cases[turn % max(1, min(stride(), len(cases))) :: stride()]
