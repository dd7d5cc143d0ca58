"""CrowdFL as a plug-in of Flower: `CrowdFLStrategy` around a FedAvg on the server, `crowdfl_mod` at the clients.

Needs the extra `flower`. docs/flower.md says what changes, who learns what, and how to deploy it.
"""

from typing import TYPE_CHECKING, Any

from crowdfl.errors import PackageMissing

if TYPE_CHECKING:
    from crowdfl.flower.mod import CrowdFLMod as CrowdFLMod
    from crowdfl.flower.mod import crowdfl_mod as crowdfl_mod
    from crowdfl.flower.strategy import CrowdFLStrategy as CrowdFLStrategy
    from crowdfl.flower.task_owner import PreparedTask as PreparedTask
    from crowdfl.flower.task_owner import open_model as open_model
    from crowdfl.flower.task_owner import prepare as prepare

_PLACES = {
    "CrowdFLMod": "mod",
    "CrowdFLStrategy": "strategy",
    "PreparedTask": "task_owner",
    "crowdfl_mod": "mod",
    "open_model": "task_owner",
    "prepare": "task_owner",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- as a module's
    """Loaded when asked for: a client needs nothing of the server, and nobody needs Flower to import this."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "flwr":
            raise
        raise PackageMissing(f"{__name__}.{name} needs Flower: `pip install 'crowdfl[flower]'`") from None
