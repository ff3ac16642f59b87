"""The error of the evaluator, in the project's form."""


class EvaluatorError(Exception):
    """`[evaluator] rule, found X for Y`; `op` is the operation, if known."""

    def __init__(self, message, op=None):
        super().__init__(message)
        self.message = message
        self.op = op

    def __str__(self):
        where = f" at {self.op}" if self.op else ""
        return f"[evaluator] {self.message}{where}"
