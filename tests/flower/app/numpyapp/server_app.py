"""The server of a deployment: CSP, KGC and the owner of the model are elsewhere."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from crowdfl.flower import CrowdFLStrategy

app = ServerApp()


def initial() -> ArrayRecord:
    return ArrayRecord({"weight": Array(np.linspace(-1, 1, 40, dtype=np.float32))})


@app.main()
def main(grid: Grid, context: Context) -> None:
    given = context.run_config
    nodes = int(given["nodes"])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy = CrowdFLStrategy(inner, csp=str(given["sp"]), task=str(given["task"]), home=str(given["home"]))
    strategy.start(grid=grid, initial_arrays=initial(), num_rounds=1)
