"""Logs as lines of JSON on stderr. Bodies, headers, tokens and messages of unexpected errors are never logged."""

import logging
import sys
import traceback
from pathlib import Path

import structlog
from structlog.types import FilteringBoundLogger, Processor

_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure(level: int = logging.INFO) -> None:
    """For a process that serves: structlog's and the standard library's lines alike."""
    structlog.configure(
        processors=[*_SHARED, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,  # configured once, before anything is served
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def get(service: str) -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger(service=service)
    return logger


def where(error: BaseException) -> list[str]:
    """Where an error came from, without its message: that could hold anything."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
