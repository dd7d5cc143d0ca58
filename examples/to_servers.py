"""From a simulation to servers: the same names, the same functions. `python examples/to_servers.py`; the extra `services`.

KGC, SP and CSP are processes of this machine, over TLS, and end with the block. `crowdfl.connect("requester/settings.toml")`
in place of `crowdfl.local_servers()` is the way to real ones, and each person then runs join.py with a file of `task.invite`.
"""

import numpy as np
from quickstart import TRUTH, evaluate, person, train

import crowdfl


def main():
    """Simulate, then create what was simulated, and let everyone take part."""
    people = [person(seed) for seed in range(5)]
    start = np.zeros(20)
    result = crowdfl.simulate(train, evaluate, people, rounds=3, initial=start, pay="equal", budget="36.00")
    with crowdfl.local_servers() as servers:
        task = servers.create(result, initial=start)
        for data, link in zip(people, task.invite(len(people)), strict=True):
            crowdfl.join(link).start(train, evaluate, data)
        task.wait(on_round=lambda done: print(f"round {done.number}: {done.participants} people"))
        print("simulated and real differ by at most", f"{abs(task.model - result.model).max():.0e}")
        print("largest error of a weight:", round(abs(task.model - TRUTH).max(), 2))
        print(task.report())


if __name__ == "__main__":
    main()
