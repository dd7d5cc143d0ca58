"""All attacks on both profiles, in the order of section 7."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from crowdfl.lab.audit.average import attack_average
from crowdfl.lab.audit.collusion import attack_overheard_reward, attack_overheard_upload, attack_upload
from crowdfl.lab.audit.divisor import attack_late_samples, attack_total
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding
from crowdfl.lab.audit.headroom import check_headroom
from crowdfl.lab.audit.hidden_total import attack_hidden_total
from crowdfl.lab.audit.lattice import attack_repeated_divisor
from crowdfl.lab.audit.pair import attack_pair, attack_scene_pair
from crowdfl.lab.audit.printed import demonstrate
from crowdfl.lab.audit.rewards import attack_rewards
from crowdfl.lab.audit.scene import Scene, play
from crowdfl.lab.audit.seeds import attack_reused_seed
from crowdfl.lab.audit.short_masks import attack_printed_masks, attack_scene_masks
from crowdfl.lab.audit.small_key import attack_small_key
from crowdfl.lab.audit.twosample import SHORTENED, tell_apart
from crowdfl.lab.audit.weakened import shorten
from crowdfl.protocols.hardened.profile import reward_widths
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings

__all__ = ["DEFAULT", "QUICK", "AuditReport", "Scale", "attack_scene", "check_widths", "run_audit"]

_PAPERS_MODEL = 277_006
_Say = Callable[[str], None]


@dataclass(frozen=True)
class Scale:
    """How large an audit is. Short keys for breadth, real ones for the run that is shown."""

    name: str
    paper_bits: int
    hardened_bits: int
    parameters: int
    side_bits: int  # of the experiments beside the run
    rounds: int  # of each input of the two-sample test


DEFAULT = Scale("real keys", 2048, 2048, 30, 2048, 40)
QUICK = Scale("INSECURE TEST KEYS", 768, 1536, 30, 768, 32)  # fewer would fail the attacks by chance


@dataclass(frozen=True)
class AuditReport:
    """Every finding, and what the reader must know of the run."""

    scale: Scale
    findings: tuple[Finding, ...]

    @property
    def surprises(self) -> list[Finding]:
        """Attacks on the paper that failed, attacks on `hardened` that did not."""
        return [finding for finding in self.findings if finding.surprising]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        keys = {PAPER: self.scale.paper_bits, HARDENED: self.scale.hardened_bits}
        return {
            "scale": self.scale.name,
            "key_bits": keys,
            "parameters": self.scale.parameters,
            "findings": [finding.to_dict() for finding in self.findings],
            "surprises": len(self.surprises),
        }


def run_audit(scale: Scale = DEFAULT, say: _Say = lambda _: None) -> AuditReport:
    """Run everything."""
    return AuditReport(scale, tuple(_findings(scale, say)))


def attack_scene(scene: Scene) -> Iterator[Finding]:
    """The attacks that need the record of one round: the same code on either profile."""
    yield attack_average(scene)
    yield from attack_total(scene)
    yield attack_upload(scene)
    yield attack_overheard_reward(scene)
    yield attack_overheard_upload(scene)
    yield attack_late_samples(scene)
    yield from attack_rewards(scene)


def check_widths() -> Iterator[Finding]:
    """The analytic check on the paper's experiment, total shown with rewards and total hidden; and with masks shortened."""
    shown, hidden = TaskSettings(), TaskSettings(total="hidden", lanes=0)
    widths = reward_widths(shown, _PAPERS_MODEL)
    budget = width_budget(hidden, _PAPERS_MODEL, widths.budget.sigma)
    yield from check_headroom(widths.budget, widths, widths.budget.sigma, task="rewards on; ")
    yield from check_headroom(budget, None, budget.sigma, task="total hidden; ")
    short = shorten(widths)
    weakened = check_headroom(short.budget, short, widths.budget.sigma, SHORTENED)
    yield from (finding for finding in weakened if "+" in finding.attack and "modulo" not in finding.attack)


def _findings(scale: Scale, say: _Say) -> Iterator[Finding]:
    say("misprints")
    yield from demonstrate()
    scenes = {}
    for profile, key_bits in ((PAPER, scale.paper_bits), (HARDENED, scale.hardened_bits)):
        say(f"an honest round of {profile}, {key_bits} bits, {scale.parameters} parameters")
        scenes[profile] = play(profile, key_bits=key_bits, parameters=scale.parameters)
    for profile, scene in scenes.items():
        say(f"attacks on {profile}")
        yield from attack_scene(scene)
    say("experiments with keys, seeds and masks")
    yield from attack_small_key(scale.side_bits // 2)
    yield attack_reused_seed(scale.side_bits)
    yield attack_printed_masks()
    yield attack_scene_masks(scenes[HARDENED])
    yield attack_pair()
    yield attack_scene_pair(scenes[HARDENED])
    yield attack_hidden_total(max(1024, scale.side_bits // 2))
    say("repeated divisors")
    yield from attack_repeated_divisor()
    yield from check_widths()
    for subject in (PAPER, HARDENED, SHORTENED):
        say(f"two samples of {subject}, {scale.rounds} rounds each")
        yield tell_apart(subject, scale.rounds)
