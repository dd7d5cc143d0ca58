"""What a caller of `simulate` has passed and may have meant: names of other programs, and values that say nothing."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

from crowdfl.errors import SettingsError
from crowdfl.settings import TaskOptions

_ALIKE = 0.7  # of two names, that one may be the other mistyped
_YOURS = "that is yours, in `train`"
_PEOPLE = "each entry of `data` is a person, and `crowdfl.partition` deals one data set out"
# What other programs call it, by what is said here: a name of `simulate`, or a sentence.
_ELSEWHERE: Mapping[str, str] = {
    "initial": "initial_model initial_parameters initial_arrays model net network state_dict weights",
    "rounds": "n_rounds num_rounds num_server_rounds",
    "workers": "max_workers n_jobs num_workers",
    "device": "devices gpu num_gpus use_cuda",
    "on_round": "callback callbacks hooks logger on_round_end",
    "evaluate_central": "evaluate_fn server_evaluate test_data test_fn",
    "fraction": "client_fraction fraction_fit fraction_train participation_rate",
    "per_round": "clients_per_round min_fit_clients min_train_nodes",
    "min_participants": "min_available_clients min_available_nodes min_clients",
    "dropouts": "dropout dropout_rate failures",
    "folder": "checkpoint checkpoint_dir checkpoints output_dir save_dir",
    "progress": "quiet tqdm verbose",
    "seed": "random_seed random_state",
    "epsilon": "noise_multiplier privacy sigma target_epsilon",
    "delta": "target_delta",
    "max_norm": "clip_norm clipping_norm max_grad_norm",
    "server_step": "aggregator server_optimizer",
    "server_rate": "server_learning_rate server_lr",
    _YOURS: "batch_size criterion epochs learning_rate local_epochs local_steps loss lr momentum optimizer proximal_mu "
    "scheduler weight_decay",
    _PEOPLE: "clients n_clients num_clients num_partitions num_supernodes num_users participants users",
}
_MEANT = {name: meant for meant, names in _ELSEWHERE.items() for name in names.split()}


def require_arguments(function: Callable[..., Any], given: Mapping[str, Any], seed: object) -> None:
    """Refuse, before anything is done, a name that `function` does not take, and a seed that is no number."""
    own = [*inspect.signature(function).parameters, *TaskOptions.__annotations__]
    if unknown := [name for name in given if name not in own]:
        raise SettingsError("; ".join(f"unknown argument `{name}`: {_hint(name, own)}" for name in unknown))
    try:
        index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise SettingsError(f"`seed` is {seed!r}; expected a whole number") from None


def _hint(name: str, own: list[str]) -> str:
    meant = _MEANT.get(name.lower()) or next(iter(difflib.get_close_matches(name, own, 1, _ALIKE)), "")
    if meant and meant not in own:
        return meant
    return f"did you mean `{meant}`?" if meant else "`help(crowdfl.simulate)` lists all of them"
