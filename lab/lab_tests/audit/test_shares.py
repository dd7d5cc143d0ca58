"""The profile `shares`: it holds as built, falls where a mechanism is switched off, and gives what its page concedes."""

import numpy as np
import pytest

from crowdfl_lab.audit import evaluations, payer
from crowdfl_lab.audit.finding import SHARES, Verdict
from crowdfl_lab.audit.shares import altered, counts, freezing, minting, openings, reuse, set_back, transcript, unused
from crowdfl_lab.audit.shares.deviating_round import PAYMENT, PEOPLE, SIZE, DeviatingRound, switched, updates

CONCEDED = {"one bit": altered.attack_bits, "claimed counts": lambda: [altered.attack_claims()]}


@pytest.mark.parametrize(
    "attack",
    [
        reuse.attack_dealt_twice,
        reuse.attack_seed,
        altered.attack_later_bits,
        altered.attack_silent,
        altered.attack_searched_count,
        altered.attack_another_count,
        reuse.attack_kept_source,
        minting.attack_minted,
        payer.attack_payer,
    ],
)
def test_the_mechanism_is_what_holds(attack):
    require_held(*attack())


def require_held(weakened, built):
    assert weakened.subject != SHARES == built.subject
    assert (weakened.verdict, built.verdict) == (Verdict.BROKEN, Verdict.GUESS)
    assert weakened.error == 0


def require_conceded(finding):
    assert (finding.subject, finding.verdict, finding.error) == (SHARES, Verdict.CONCEDED, 0)
    assert not finding.surprising


def test_a_server_of_flowers_reads_no_data_off_models_of_its_own():
    """As built two ways are refused, and of the third the task's average is evaluated."""
    weakened, built = evaluations.attack_evaluations()
    assert (weakened.verdict, weakened.recovered) == (Verdict.BROKEN, "4 of 4 numbers")
    assert (built.verdict, built.recovered) == (Verdict.GUESS, "0 of 4 numbers")
    assert built.note == "instead: ModelMismatch, besides: 5 losses, another: ProtocolError"


def test_a_server_of_flowers_asks_no_questions_of_its_own():
    weakened, built = evaluations.attack_queries()
    require_held(weakened, built)
    assert built.note == "72 of 72 questions refused"


def test_nobody_is_paid_for_an_upload_that_is_none_or_twice_for_a_round():
    one_byte, checked, two_phones, one_person = unused.attack_unused()
    require_held(one_byte, checked)
    require_held(two_phones, one_person)
    assert (checked.note, one_person.note) == ("refused: Truncated", "refused: AlreadyCounted")


def test_masks_of_a_block_stay_closed_and_a_dealer_that_kept_them_reads_all_of_it():
    opened, closed, dealer = reuse.attack_dealer()
    require_held(opened, closed)
    require_conceded(dealer)


def test_no_server_chooses_its_part_of_a_sum_after_the_others():
    """What is fixed beforehand is conceded: nearly an upload."""
    *rows, by_sp, by_csp = freezing.attack_freezing()
    for weakened, built in zip(rows[::2], rows[1::2], strict=True):
        require_held(weakened, built)
    assert rows[1].note == "refused: ChainBroken"  # the sum is not the one of CSP's record
    for finding in (by_sp, by_csp):
        assert (finding.subject, finding.verdict, finding.surprising) == (SHARES, Verdict.CONCEDED, False)
        assert finding.error < 0.05 * finding.blind


def test_a_guard_holds_what_was_dealt_to_one_content_and_both_places_together_do_not():
    """Every upload of the round, exactly, is what the other server reads then."""
    sp, both_of_sp, csp, both_of_csp = set_back.attack_set_back()
    assert [(row.verdict, row.note) for row in (sp, csp)] == [
        (Verdict.GUESS, "ended: SP was set back to an earlier state"),
        (Verdict.GUESS, "refused: RolledBack"),
    ]
    for row in (both_of_sp, both_of_csp):
        require_conceded(row)
        assert row.recovered == "160 of 160 entries"


def test_hashes_test_no_guess():
    """CSP tries the truth itself, with every salt that it knows."""
    searched_upload, searched_average, upload, average = transcript.attack_hashes()
    require_held(searched_upload, upload)
    require_held(searched_average, average)


def test_numbers_of_samples_give_nothing_away_where_there_are_none():
    """Of a sum that two rounds almost share, what moved in between is left."""
    *rows, by_claims = counts.attack_counts()
    require_conceded(by_claims)
    for weakened, built in zip(rows[::2], rows[1::2], strict=True):
        assert weakened.subject != SHARES == built.subject
        assert (weakened.verdict, built.verdict) == (Verdict.BROKEN, Verdict.GUESS)
        assert weakened.error < 0.1 * weakened.blind


def test_a_second_sum_is_an_upload_and_csp_opens_none():
    rows = list(reuse.attack_order())
    for weakened, built in zip(rows[::2], rows[1::2], strict=True):
        require_held(weakened, built)
        assert weakened.recovered == "8 of 8 entries"
    refusals = [row.note.removeprefix("refused: ") for row in rows[1::2]]
    assert refusals == ["TooFewParticipants", "ProtocolError", "AlreadyCounted", "RoundEnded", "BaseSpent"]


def test_a_model_that_stands_still_reads_an_upload_and_phones_refuse_the_task():
    still, refused = reuse.attack_standing_model()
    assert (still.verdict, still.recovered) == (Verdict.BROKEN, "8 of 8 entries")
    assert (refused.verdict, refused.note) == (Verdict.GUESS, "phones refuse the task: SettingsError")


@pytest.mark.parametrize("attack", CONCEDED.values(), ids=CONCEDED.keys())
def test_what_is_conceded_succeeds_and_is_shown_as_such(attack):
    """If it ever fails, docs/shares.md concedes too much."""
    for finding in attack():
        require_conceded(finding)


@pytest.mark.parametrize("pay", ["equal", "samples"])
def test_sp_asks_one_question_of_an_upload_a_round(pay):
    """With a paid participant: the check tells it one bit, and pay does not depend on where an update points."""
    told = []
    for change in (2.0 * np.eye(SIZE)[0], 0.5 * np.eye(SIZE)[1], -0.5 * np.eye(SIZE)[1]):
        round_ = DeviatingRound.paying(pay=pay)
        round_.tamper("SP", altered.threshold(round_))
        models = dict.fromkeys(PEOPLE, np.eye(SIZE)[1] * 0.3) | {altered.MEASURED: change}
        played = round_.open(1)
        played.collect(round_.encrypt({who: (model, PEOPLE[who]) for who, model in models.items()}))
        reward = round_.phone("p0").open_reward(played.reward(PAYMENT)["p0"], 1)
        told.append((altered.MEASURED in round_.sp.rejected(), round(reward, -1)))
    assert [rejected for rejected, _ in told] == [True, False, False]
    assert told[1] == told[2]


def test_a_shifted_sum_reads_an_entry_where_weights_are_real_numbers_alone():
    distance, samples = altered.attack_shifted_sum()
    assert distance.verdict is Verdict.CONCEDED
    assert distance.error < 0.1
    assert samples.verdict is Verdict.GUESS


def test_a_large_number_added_to_a_divisor_reads_it_where_nothing_limits_it():
    unguarded, built = altered.attack_inflated()
    assert (unguarded.verdict, unguarded.error) == (Verdict.BROKEN, 0)
    assert built.verdict is Verdict.GUESS


def test_no_reading_of_a_round_is_better_than_a_guess():
    rows = list(transcript.attack_transcript())
    assert not [row for row in rows if row.surprising]
    assert {row.attackers for row in rows} == {("SP",), ("CSP",), ("participant",)}


def test_views_differ_if_masks_are_zeros_alone():
    """The levels of the audit leave it one chance in 10^5 to be wrong; here, none worth the name."""
    zeros, *honest = openings.tell_apart(rounds=2)
    assert zeros.error < 1e-20
    assert all(row.error > 2**-30 for row in (*honest, *openings.tell_apart_altered()))


def test_a_mechanism_is_switched_on_again_whatever_happens():
    class Owner:
        value = 1

    seen = []

    def fail():
        with switched(Owner, "value", 2):
            seen.append(Owner.value)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [*seen, Owner.value] == [2, 1]


def test_the_conversation_is_a_whole_round():
    """Fourteen exchanges of a round that pays by `distance`, in order: what attacks name by number."""
    round_ = DeviatingRound.paying()
    rewards = round_.play_all(1, updates()).rewards
    assert [said.step for said in round_.conversation] == list(range(1, 15))
    assert np.all([rewards[who] > 0 for who in PEOPLE])
