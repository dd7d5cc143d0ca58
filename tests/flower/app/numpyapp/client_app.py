"""A client: it adds a number of its own to every weight."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from crowdfl.flower import crowdfl_mod

app = ClientApp(mods=[crowdfl_mod])


@app.train()
def train(msg: Message, context: Context) -> Message:
    who = int(context.node_config["partition-id"])
    arrays = {name: Array(array.numpy() + who) for name, array in msg.content["arrays"].items()}
    metrics = MetricRecord({"num-examples": 10 + who})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=msg)
