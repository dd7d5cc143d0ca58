"""What becomes of a task whose step failed."""

__all__ = ["Troubles"]


class Troubles:
    """Here: whoever asked for the step is told. A service lets the task rest instead, the longer the more often it failed."""

    def rests(self, _task: str) -> bool:
        """Whether its next step is not due yet."""
        return False

    def met(self, _task: str, failure: Exception) -> Exception | None:
        """A step failed; what is to be raised once the other tasks had theirs."""
        return failure

    def over(self, _task: str) -> None:
        """A step went well."""
