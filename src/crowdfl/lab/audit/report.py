"""All attacks on both profiles, in the order of section 7, and what is shown of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from crowdfl.lab.audit.averages import attack_average, attack_hidden_total, attack_late_samples, attack_total
from crowdfl.lab.audit.collusion import attack_overheard_reward, attack_overheard_upload, attack_upload
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, Verdict
from crowdfl.lab.audit.headroom import check_widths
from crowdfl.lab.audit.keys import attack_reused_seed, attack_small_key
from crowdfl.lab.audit.masks import attack_printed_masks, attack_repeated_divisor, attack_scene_masks
from crowdfl.lab.audit.printed import demonstrate
from crowdfl.lab.audit.rewards import attack_pair, attack_rewards, attack_scene_pair
from crowdfl.lab.audit.scene import Scene, play
from crowdfl.lab.audit.statistics import tell_apart
from crowdfl.lab.audit.weakened import SHORTENED
from crowdfl.lab.report.results import Result, ResultTable
from crowdfl.lab.timing import machine

__all__ = ["DEFAULT", "QUICK", "AuditReport", "Scale", "attack_scene", "run_audit"]

_Say = Callable[[str], None]
_COLUMNS = ("", "7.", "what, by whom", "of", "recovered", "error", "blind", "verdict")
_SURPRISE = " (!)"
_COLOURS = {Verdict.BROKEN: "red", Verdict.GUESS: "green"}


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
    machine: Mapping[str, str | int]

    @property
    def surprises(self) -> list[Finding]:
        """Attacks on the paper that failed, attacks on `hardened` that did not."""
        return [finding for finding in self.findings if finding.surprising]

    def result(self) -> Result:
        scale = self.scale
        title = f"crowdfl audit, {scale.name}: |N| = {scale.paper_bits} (paper), {scale.hardened_bits} (hardened)"
        cells = tuple((str(number), *_cells(finding)) for number, finding in enumerate(self.findings, start=1))
        colours = {verdict + mark: colour for verdict, colour in _COLOURS.items() for mark in ("", _SURPRISE)}
        notes = [f"{number:2}  {f.measure}; {f.note}" for number, f in enumerate(self.findings, start=1)]
        unexpected = ", ".join(f"{finding.attack} of {finding.subject}" for finding in self.surprises)
        return Result(
            "audit",
            title,
            self.machine,
            asdict(scale),
            tables=(ResultTable(title, _COLUMNS, cells, colours=colours),),
            notes=(*notes, f"unexpected: {unexpected or 'nothing'}"),
            data={
                "scale": scale.name,
                "key_bits": {PAPER: scale.paper_bits, HARDENED: scale.hardened_bits},
                "parameters": scale.parameters,
                "findings": [finding.to_dict() for finding in self.findings],
                "surprises": len(self.surprises),
            },
            command="crowdfl audit",
        )


def _cells(finding: Finding) -> tuple[str, ...]:
    verdict = finding.verdict + (_SURPRISE if finding.surprising else "")
    errors = f"{finding.error:.3g}", f"{finding.blind:.3g}"
    return finding.section, finding.title, finding.subject, finding.recovered, *errors, verdict


def run_audit(scale: Scale = DEFAULT, say: _Say = lambda _: None) -> AuditReport:
    where = machine()
    return AuditReport(scale, tuple(_findings(scale, say)), where)


def attack_scene(scene: Scene) -> Iterator[Finding]:
    """The attacks that need the record of one round: the same code on either profile."""
    yield attack_average(scene)
    yield from attack_total(scene)
    yield attack_upload(scene)
    yield attack_overheard_reward(scene)
    yield attack_overheard_upload(scene)
    yield attack_late_samples(scene)
    yield from attack_rewards(scene)


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
