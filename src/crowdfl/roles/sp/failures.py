"""What becomes of a task whose step failed."""

__all__ = ["Failures"]


class Failures:
    """Here: whoever asked for the step is told. A service lets the task rest instead, the longer the more often it failed."""

    def is_backing_off(self, _task: str) -> bool:
        """Whether its next step is not due yet."""
        return False

    def record_failure(self, _task: str, failure: Exception) -> Exception | None:
        """A step failed; what is to be raised once the other tasks had theirs."""
        return failure

    def record_success(self, _task: str) -> None:
        """A step went well."""
