"""The one error of the evaluator, in the house form."""


class EvaluatorError(Exception):
    """`[evaluator] rule, found X for Y`; `op` is where, when it is known."""

    def __init__(self, message, op=None):
        super().__init__(message)
        self.message = message
        self.op = op

    def __str__(self):
        where = f" at {self.op}" if self.op else ""
        return f"[evaluator] {self.message}{where}"
