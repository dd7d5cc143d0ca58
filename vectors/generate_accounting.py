"""Writes accounting.json: (epsilon, delta) of concentrated privacy, by the formula with fifty digits and by dp-accounting.

The package dp-accounting wants an environment of its own. Where it is missing, its figures stay as they are in the file.
"""

import json
from decimal import Decimal, localcontext
from pathlib import Path

PLACE = Path(__file__).with_name("accounting.json")
SHARE = Decimal("0.9")
CASES = [(0.001, 1e-6), (0.05, 1e-5), (0.3, 1e-5), (1.2233, 1e-5), (2.5, 1e-9), (10.0, 1e-5), (40.0, 1e-3)]
MECHANISMS = [(2.863, 20, 1e-5), (18.1, 20, 1e-5), (1.2, 1, 1e-5), (5.0, 100, 1e-7)]  # z, rounds, delta


def orders() -> list[Decimal]:
    return [Decimal(2) ** (Decimal(step) / 16) for step in range(-160, 241)]


def epsilon_of(rho: float, delta: float) -> Decimal:
    wanted = (Decimal(delta) * SHARE).ln()
    return max(
        Decimal(0),
        min((o + 1) * Decimal(rho) - ((o + 1) * (1 + 1 / o).ln() + o.ln() + wanted) / o for o in orders()),
    )


def log_delta(rho: float, epsilon: float) -> Decimal:
    return min(o * ((o + 1) * Decimal(rho) - Decimal(epsilon)) - (o + 1) * (1 + 1 / o).ln() - o.ln() for o in orders())


def ours() -> list[dict[str, float]]:
    made = []
    for rho, delta in CASES:
        epsilon = float(epsilon_of(rho, delta))
        made.append({"rho": rho, "delta": delta, "epsilon": epsilon, "log_delta": float(log_delta(rho, epsilon))})
    return made


def oracle() -> list[dict[str, float]]:
    """What the Gaussian mechanism costs by Renyi orders, and by its exact privacy loss, which is less."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError:
        found: list[dict[str, float]] = json.loads(PLACE.read_text())["oracle"]
        return found
    made = []
    for z, rounds, delta in MECHANISMS:
        event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(z), rounds)
        renyi, exact = (kind().compose(event).get_epsilon(0.9 * delta) for kind in (RdpAccountant, PLDAccountant))
        made.append({"z": z, "rounds": rounds, "delta": delta, "renyi": round(renyi, 6), "exact": round(exact, 6)})
    return made


def documents() -> dict[str, str]:
    """The file's name and text."""
    with localcontext(prec=50):
        return {PLACE.name: json.dumps({"ours": ours(), "oracle": oracle()}, indent=1) + "\n"}


if __name__ == "__main__":
    for text in documents().values():
        PLACE.write_text(text, encoding="utf-8")
