"""`crowdfl audit`: all attacks on all profiles, the paper's first, in the order of section 7, and what is shown of them.

`crowdfl audit incentives` is about people rather than servers: what cheaters earn under each rule of payment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl_lab.audit.finding import HARDENED, PAPER, SHARES, Finding, Verdict

if TYPE_CHECKING:
    from crowdfl_lab.audit.recorded_round import RecordedRound
    from crowdfl_lab.report.results import Result


_COLUMNS = ("", "7.", "what, by whom", "of", "error", "blind", "verdict")
_ABOUT = (
    "7.: which part of the paper's section 7; error: the attacker's, blind: a guess's. "
    "The numbered lines say what was recovered, and what the error is."
)
_SURPRISE = " (!)"
_COLOURS = {Verdict.BROKEN: "red", Verdict.GUESS: "green", Verdict.CONCEDED: "yellow"}


@dataclass(frozen=True)
class _Scale:
    """How large an audit is. Short keys for breadth, real ones for the run that is shown."""

    name: str
    paper_bits: int
    hardened_bits: int
    parameters: int
    side_bits: int  # of the experiments beside the run
    rounds: int  # of each input of the two-sample test


_DEFAULT = _Scale("real keys", 2048, 2048, 30, 2048, 40)
_QUICK = _Scale("INSECURE TEST KEYS", 768, 1536, 30, 768, 16)  # fewer would fail the attacks by chance
_DATA = Path("data")
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_Few = Annotated[bool, typer.Option("--quick", help="Few made-up people: seconds.")]
_NETWORK_HELP = "A network with a hidden layer instead of softmax regression."
_Network = Annotated[bool, typer.Option("--network", help=_NETWORK_HELP)]
_DATA_HELP = "The folder of the WISDM and MotionSense NumPy sets."
_Data = Annotated[Path, typer.Option(envvar="CROWDFL_DATA", help=_DATA_HELP)]
_Out = Annotated[Path | None, typer.Option(help="A folder for JSON, Markdown, CSV, pictures and HTML.")]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def audit(
    context: typer.Context,
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short test keys and fewer rounds.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if an attack's result is not the expected one.")
    ] = False,
) -> None:
    from crowdfl_lab.report.output import deliver, progress_to_stderr
    from crowdfl_lab.timing import machine

    if context.invoked_subcommand is not None:
        if as_json or quick or check:
            raise typer.BadParameter(f"write options after `{context.invoked_subcommand}`")
        return
    scale, where = _QUICK if quick else _DEFAULT, machine()
    findings = list(_findings(scale, progress_to_stderr()))
    deliver(_result(scale, findings, where), as_json=as_json)
    if check and (any(finding.surprising for finding in findings) or undisclosed(findings)):
        raise typer.Exit(1)


@app.command()
def incentives(
    as_json: _AsJson = False, quick: _Few = False, network: _Network = False, data: _Data = _DATA, out: _Out = None
) -> None:
    """Let people cheat under every rule of payment: their part of the budget."""
    from crowdfl_lab.audit.incentives import IncentiveSettings, audit_incentives
    from crowdfl_lab.report.output import deliver, progress_to_stderr

    folder, notes = _data_sets(data, quick=quick, network=network)
    settings = IncentiveSettings.quick() if folder is None else IncentiveSettings()
    settings = IncentiveSettings.network() if network and folder is not None else settings
    command = "crowdfl audit incentives" + " --quick" * quick + " --network" * network
    deliver(audit_incentives(settings, folder, progress_to_stderr(), notes, command), as_json=as_json, out=out)


@app.command()
def poisoning(
    as_json: _AsJson = False,
    quick: _Few = False,
    network: _Network = False,
    real: Annotated[bool, typer.Option("--real", help="Rounds by all roles and both servers; fewer of them.")] = False,
    data: _Data = _DATA,
    out: _Out = None,
) -> None:
    """Let people send poison: what it does to a model, with and without the requester's reference."""
    from crowdfl_lab.audit.poisoning import PoisonSettings, audit_poisoning, with_real
    from crowdfl_lab.report.output import deliver, progress_to_stderr

    folder, notes = _data_sets(data, quick=quick, network=network)
    settings = PoisonSettings.quick() if folder is None else PoisonSettings()
    settings = PoisonSettings.network() if network and folder is not None else settings
    command = "crowdfl audit poisoning" + " --quick" * quick + " --network" * network + " --real" * real
    chosen = with_real(settings) if real else settings
    deliver(audit_poisoning(chosen, folder, progress_to_stderr(), notes, command, out), as_json=as_json, out=out)


def _data_sets(data: Path, *, quick: bool, network: bool) -> tuple[Path | None, list[str]]:
    """The folder of both sets, if it has them and they are wanted; and what to say of a file that is missing.

    Of MotionSense there is no command, for its NumPy form is not made here.
    """
    from crowdfl_lab.audit.campaign import missing_files
    from crowdfl_lab.wisdm_set import HOW_TO_GET, SET_FILE

    if quick and network:
        raise typer.BadParameter("--quick and --network exclude each other")
    missing = [] if quick else missing_files(data)
    how = f"{HOW_TO_GET}, and " * (SET_FILE in missing) + "name the folder that has both with --data"
    notes = [f"MADE-UP PEOPLE: {', '.join(missing)} not found in {data}: {how}"] if missing else []
    return None if quick or missing else data, notes


@app.command()
def privacy(
    as_json: _AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a result is not the expected one.")] = False,
    tries: Annotated[int, typer.Option(min=1000, help="With and without a person, for each row.")] = 20_000,
) -> None:
    """Try to tell one person's updates from zeros, by all that a server and readers see; then with each safeguard broken."""
    from crowdfl_lab.audit.privacy import audit_privacy
    from crowdfl_lab.report.output import deliver, progress_to_stderr

    found = audit_privacy(tries, progress_to_stderr(), "crowdfl audit privacy")
    deliver(found, as_json=as_json)
    if check and found.data["surprises"]:
        raise typer.Exit(1)


def attack_recorded(recorded: "RecordedRound") -> Iterator[Finding]:
    """The attacks that need the record of one round: the same code on either profile."""
    from crowdfl_lab.audit import keys, readings

    yield readings.attack_average(recorded)
    yield from readings.attack_total(recorded)
    yield keys.attack_upload(recorded)
    yield keys.attack_overheard_reward(recorded)
    yield keys.attack_overheard_upload(recorded)
    yield readings.attack_late_samples(recorded)
    yield readings.attack_late_model(recorded)
    yield from readings.attack_rewards(recorded)


def _findings(scale: _Scale, say: Callable[[str], None]) -> Iterator[Finding]:
    from crowdfl_lab.audit import (
        deviating_csp,
        deviating_sp,
        isolation,
        keys,
        masks,
        money,
        printed,
        processes,
        readings,
        set_back,
        unsigned_rounds,
    )
    from crowdfl_lab.audit.headroom import SHORTENED, check_widths, tell_apart
    from crowdfl_lab.audit.recorded_round import record_round

    say("misprints")
    yield from printed.demonstrate()
    recorded = {}
    for profile, key_bits in ((PAPER, scale.paper_bits), (HARDENED, scale.hardened_bits)):
        say(f"an honest round of {profile}, {key_bits} bits, {scale.parameters} parameters")
        recorded[profile] = record_round(profile, key_bits=key_bits, parameters=scale.parameters)
    for profile, round_ in recorded.items():
        say(f"attacks on {profile}")
        yield from attack_recorded(round_)
    say("experiments with keys, seeds and masks")
    yield from keys.attack_small_key(scale.side_bits // 2)
    yield readings.attack_reused_seed(scale.side_bits)
    yield masks.attack_printed_masks()
    yield from masks.attack_repeated_operand()
    yield readings.attack_pair()
    yield readings.attack_recorded_pair(recorded[HARDENED])
    yield readings.attack_hidden_total(max(1024, scale.side_bits // 2))
    say("an SP that deviates")
    yield from deviating_sp.attack_signs()
    yield from processes.attack_processes()
    yield from unsigned_rounds.attack_unsigned_rounds()
    yield from set_back.attack_set_back()
    yield from deviating_sp.attack_power_lengths()
    yield from deviating_sp.attack_claims()
    yield deviating_sp.attack_chosen_reward()
    yield deviating_sp.attack_several_uploads()
    yield from deviating_sp.attack_phone()
    say("a CSP that deviates")
    yield from deviating_csp.attack_altered_lane()
    yield from deviating_csp.attack_inflated("divisor")
    yield from deviating_csp.attack_inflated("dividend")
    yield deviating_csp.attack_claimed_number()
    yield deviating_csp.attack_false_scaling()
    say("a requester that chooses the crowd")
    yield from isolation.attack_isolation()
    say("money that should have been paid")
    yield from money.attack_free_model()
    yield from money.attack_pause()
    yield from money.attack_reward_given_up()
    yield from money.attack_restored()
    say("repeated divisors")
    yield from masks.attack_repeated_divisor()
    yield from check_widths()
    for subject, rounds in ((PAPER, scale.rounds), (HARDENED, scale.rounds), (SHORTENED, 8)):
        say(f"two samples of {subject}, {rounds} rounds each")
        yield tell_apart(subject, rounds)
    yield from _shares(say)


def _shares(say: Callable[[str], None]) -> Iterator[Finding]:
    from crowdfl_lab.audit import evaluations, isolation, payer
    from crowdfl_lab.audit.shares import (
        altered,
        counts,
        freezing,
        minting,
        openings,
        references,
        reuse,
        transcript,
        unused,
        words,
    )
    from crowdfl_lab.audit.shares import set_back as shares_set_back

    say("rounds of shares, read by each server")
    yield from transcript.attack_transcript()
    yield from transcript.attack_hashes()
    yield from reuse.attack_seed()
    say("shares: how people count")
    yield from counts.attack_counts()
    say("shares: an SP that deviates, with a reader")
    yield from reuse.attack_order()
    yield from reuse.attack_standing_model()
    say("shares: a server that holds the model still, with a reader")
    yield from freezing.attack_freezing()
    say("shares: a server that was set back")
    yield from shares_set_back.attack_set_back()
    say("shares: what is dealt, and what it covers")
    yield from reuse.attack_dealt_twice()
    yield from reuse.attack_dealer()
    yield from reuse.attack_kept_source()
    yield from minting.attack_minted()
    say("shares: servers that alter their shares")
    yield from altered.attack_inflated()
    yield from altered.attack_shifted_sum()
    yield from altered.attack_bits()
    yield from altered.attack_later_bits()
    yield from altered.attack_silent()
    yield from words.attack_denied_bits()
    yield from words.attack_forgotten_bits()
    yield from words.attack_used_unpaid()
    yield from words.attack_used_deleted()
    yield from references.attack_direction()
    yield from references.attack_cohorts()
    yield from references.attack_condition()
    yield altered.attack_claims()
    yield from altered.attack_searched_count()
    yield from altered.attack_another_count()
    yield from isolation.attack_isolation(profile=SHARES)
    yield from evaluations.attack_evaluations()
    yield from evaluations.attack_queries()
    yield from unused.attack_unused()
    yield from payer.attack_payer()
    say("shares: two samples of both servers' views")
    yield from openings.tell_apart()
    yield from openings.tell_apart_altered()


def _result(scale: _Scale, findings: list[Finding], where: Mapping[str, str | int]) -> "Result":
    from crowdfl_lab.report.results import Result, ResultTable

    title = f"crowdfl audit, {scale.name}: |N| = {scale.paper_bits} (paper), {scale.hardened_bits} (hardened)"
    rows = tuple(_cells(number, finding) for number, finding in enumerate(findings, start=1))
    colours = {verdict + mark: colour for verdict, colour in _COLOURS.items() for mark in ("", _SURPRISE)}
    notes = [f"{number:3}  {f.recovered}; {f.measure}; {f.note}" for number, f in enumerate(findings, start=1)]
    surprises = [f"{finding.attack} of {finding.subject}" for finding in findings if finding.surprising]
    return Result(
        "audit",
        title,
        where,
        asdict(scale),
        tables=(ResultTable(title, _COLUMNS, rows, _ABOUT, colours),),
        notes=(
            *notes,
            f"unexpected: {', '.join(surprises) or 'nothing'}",
            f"named in SECURITY.md and missing here: {', '.join(undisclosed(findings)) or 'nothing'}",
        ),
        data={
            "scale": scale.name,
            "key_bits": {PAPER: scale.paper_bits, HARDENED: scale.hardened_bits},
            "parameters": scale.parameters,
            "findings": [finding.to_dict() for finding in findings],
            "surprises": len(surprises),
        },
        command="crowdfl audit",
    )


def undisclosed(findings: Sequence[Finding]) -> list[str]:
    """Rows that `crowdfl.disclosures` names, and that no attack has made."""
    from crowdfl.disclosures import disclosures

    made = {(finding.attack, finding.subject) for finding in findings}
    named = ((name, row.profile) for row in disclosures() for name in row.audit if row.profile != "every")
    elsewhere = "differential privacy"  # by `crowdfl audit privacy`
    return [f"{name} of {profile}" for name, profile in named if name != elsewhere and (name, profile) not in made]


def _cells(number: int, f: Finding) -> tuple[str, ...]:
    verdict = f.verdict + (_SURPRISE if f.surprising else "")
    return str(number), f.section, f.title, f.subject, f"{f.error:.3g}", f"{f.blind:.3g}", verdict
