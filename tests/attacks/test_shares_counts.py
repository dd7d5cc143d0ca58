"""A platform and one participant, who looks into its own envelopes: numbers of samples of others, from rewards."""

import pytest

from crowdfl.errors import BaseSpent, ProtocolError
from crowdfl.protocols.exchange import run_exchange
from crowdfl.protocols.shares.round.manifest import RoundManifest, StepRequest
from tests.protocols.shares.parties import PAYING, PAYMENT, UNCHECKED, Parties


def paid_samples(parties: Parties, number: int, names: list[str]) -> int:
    """The sum of the samples that a round pays, as its first participant reads it off its reward. No average is asked for."""
    models, samples = parties.models(), {who: place + 2 for place, who in enumerate(parties.names)}
    sp, accomplice = parties.new_sp(number), names[0]
    sp.add_all(parties.encrypt(number, {who: models[who] for who in names}, samples))
    run_exchange(sp.reward(PAYMENT), parties.ask)
    reward = parties.people[accomplice].open_reward(sp.envelopes()[accomplice], number)
    return round(samples[accomplice] * (PAYMENT - len(names)) / reward)


def test_rewards_of_rounds_that_are_never_opened_isolate_nobody() -> None:
    """Everyone, and then everyone but one: the difference would be that one's number of samples."""
    parties = Parties(people_count=6, settings=PAYING)
    everyone = paid_samples(parties, 1, parties.names)
    assert everyone == sum(range(2, 8))
    with pytest.raises(BaseSpent):
        paid_samples(parties, 2, parties.names[:-1])


def test_a_manifest_of_a_round_that_no_task_has_is_refused_by_name() -> None:
    parties = Parties(settings=UNCHECKED)
    manifest = RoundManifest(parties.spec.name, 1 << 40, bytes(32), b"", 0, (), (), (), ())
    with pytest.raises(ProtocolError, match="of another round"):
        parties.new_csp().answer(StepRequest(3, 1, b"", manifest.to_bytes()).to_bytes())
