"""What the paper prints in section 8, to stand beside what is measured here. Its figures are drawn, not tabulated: for those
the sentences that say what they show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = [
    "BUDGET",
    "FIGURES",
    "FULL_PARAMETERS",
    "TABLE3",
    "TABLE4",
    "TABLE5",
    "TABLE6",
    "Formula",
]

FULL_PARAMETERS = 277_006  # 270-1000-6
BUDGET = "36"  # of a round, in dollars

# accuracy, precision, recall, F1, MAD
TABLE3: Mapping[str, tuple[float, float, float, float, float | None]] = {
    "NN": (0.7778, 0.6891, 0.6961, 0.6825, None),
    "FedAvg_1": (0.6481, 0.6358, 0.574, 0.6144, 0.0933),
    "FedAvg_2": (0.7553, 0.6497, 0.642, 0.5733, 0.0563),
    "FedAvg_3": (0.7619, 0.6311, 0.6605, 0.6077, 0.0461),
    "FedAvg_4": (0.7725, 0.6335, 0.6653, 0.6186, 0.0389),
    "FedAvg_5": (0.7751, 0.6446, 0.6757, 0.6390, 0.0278),
    "PriFedAvg": (0.7751, 0.6446, 0.6757, 0.6390, 0.0278),
}


@dataclass(frozen=True)
class Formula:
    """A count as the paper writes it, and its value for n participants."""

    text: str
    at: Callable[[int], int]


def _each(count: int) -> Formula:
    return Formula(str(count), lambda n: count)


# By scheme, role and operation; SecDiv is SDIV here, as in the paper's own comparison of times, and K = 1.
TABLE4: Mapping[tuple[str, str, str], Formula] = {
    ("PPFDL", "SP", "PAdd"): Formula("(4n-3) + (n-1)", lambda n: 5 * n - 4),
    ("PPFDL", "SP", "PMul"): Formula("n + 1", lambda n: n + 1),
    ("PPFDL", "SP", "SMUL"): Formula("2n", lambda n: 2 * n),
    ("PPFDL", "SP", "SDIV"): Formula("n + 1", lambda n: n + 1),
    ("PPFDL", "CSP", "SMUL"): Formula("2n", lambda n: 2 * n),
    ("PPFDL", "CSP", "SDIV"): Formula("n + 1", lambda n: n + 1),
    ("PPFDL", "participant", "Enc"): _each(1),
    ("PPFDL", "participant", "Dec"): _each(1),
    ("PriFedAvg", "SP", "PAdd"): Formula("2n-2", lambda n: 2 * n - 2),
    ("PriFedAvg", "SP", "SDIV"): _each(1),
    ("PriFedAvg", "CSP", "SDIV"): _each(1),
    ("PriFedAvg", "participant", "Enc"): _each(2),
    ("PriFedAvg", "participant", "PMul"): _each(1),
    ("PriFedAvg", "participant", "PDec"): _each(1),
    ("PriFedAvg", "participant", "TDec"): _each(1),
    ("PriRwd", "SP", "PAdd"): Formula("4n-2", lambda n: 4 * n - 2),
    ("PriRwd", "SP", "PMul"): Formula("n", lambda n: n),
    ("PriRwd", "SP", "SMUL"): Formula("4n", lambda n: 4 * n),
    ("PriRwd", "SP", "SDIV"): Formula("2n", lambda n: 2 * n),
    ("PriRwd", "CSP", "SMUL"): Formula("4n", lambda n: 4 * n),
    ("PriRwd", "CSP", "SDIV"): Formula("2n", lambda n: 2 * n),
    ("PriRwd", "participant", "Enc"): _each(1),
}

# By scheme, role and quantity: numbers of the length L of a ciphertext sent and received, and messages. Of PPFDL's the
# garbled circuits, (n+1)(|GC| + 5h) on top, are left out: neither length is given.
TABLE5: Mapping[tuple[str, str, str], Formula] = {
    ("PPFDL", "SP", "L"): Formula("11n+3", lambda n: 11 * n + 3),
    ("PPFDL", "CSP", "L"): Formula("9n+3", lambda n: 9 * n + 3),
    ("PPFDL", "participant", "L"): _each(2),
    ("PPFDL", "SP", "messages"): Formula("10n+4", lambda n: 10 * n + 4),
    ("PPFDL", "CSP", "messages"): Formula("8n+4", lambda n: 8 * n + 4),
    ("PPFDL", "participant", "messages"): _each(2),
    ("PriFedAvg", "SP", "L"): Formula("4n+5", lambda n: 4 * n + 5),
    ("PriFedAvg", "CSP", "L"): _each(5),
    ("PriFedAvg", "participant", "L"): _each(4),
    ("PriFedAvg", "SP", "messages"): Formula("2n+2", lambda n: 2 * n + 2),
    ("PriFedAvg", "CSP", "messages"): _each(2),
    ("PriFedAvg", "participant", "messages"): _each(2),
    ("PriRwd", "SP", "L"): Formula("31n", lambda n: 31 * n),
    ("PriRwd", "CSP", "L"): Formula("30n", lambda n: 30 * n),
    ("PriRwd", "participant", "L"): _each(1),
    ("PriRwd", "SP", "messages"): Formula("13n", lambda n: 13 * n),
    ("PriRwd", "CSP", "messages"): Formula("12n", lambda n: 12 * n),
    ("PriRwd", "participant", "messages"): _each(1),
}

# Seconds, then messages of the participant, SP and CSP; m peers, t shares.
TABLE6: Mapping[str, tuple[str, str, str, str]] = {
    "CrowdFL-D": ("--", "0", "0", "0"),
    "CrowdFL-R": ("12.3", "1", "2", "2"),
    "secret sharing": ("3.4", "m+1", "t", "--"),
}

# What the text says of each figure, in short.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "fig3": (
        "CrowdFL has better accuracy and F1 than NN at every dropout rate.",
        "CrowdFL-R is generally more accurate than CrowdFL-D.",
    ),
    "fig4": (
        "The less d(w_i, average), the larger the weight w_i.",
        "Distances shrink from round 2 to round 4.",
        "The reward mu_i grows with w_i.",
    ),
    "fig5": (
        "First training takes less time than training again.",
        "Encrypting takes CrowdFL about as long as PPFDL.",
    ),
    "fig6": (
        "Averaging takes CrowdFL far less time than PPFDL.",
        "Decrypting takes CrowdFL about twice as long as PPFDL.",
        "With the small share, less than PPFDL.",
    ),
    "fig7": (
        "Who earns much earns more from round to round, who earns little less.",
        "PriFedAvg and PriRwd together take about as long as PPFDL's averaging.",
    ),
}
