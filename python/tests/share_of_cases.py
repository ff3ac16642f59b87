"""How much of a list of cases a run meets: TESSERA_CASES and its turn."""

import os


def stride():
    """The odd step through a list that meets TESSERA_CASES=30% of it, say."""
    text = os.environ.get("TESSERA_CASES", "100%")
    percent = int(text[:-1]) if text.endswith("%") else 100
    return max(100 // max(percent, 1), 1) | 1


def some(cases):
    """Of cases, those that TESSERA_CASES asks for, and TESSERA_CASES_TURN says
    which; all without it."""
    cases = list(cases)
    turn = int(os.environ.get("TESSERA_CASES_TURN") or "0")
    return cases[turn % max(1, min(stride(), len(cases))) :: stride()]
