"""Who reads a `shares` task: the requester, and participants, who also upload, open their rewards and claim them."""

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import NotReady
from crowdfl.protocols import claims
from crowdfl.protocols.envelopes import RewardEnvelope
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import Average, ParticipantKeys, whole_samples
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.dealing.keys import SharesReaderBundle
from crowdfl.protocols.shares.round.average import PARTICIPANTS, REQUESTER, AverageReader, OpenedAverage
from crowdfl.protocols.shares.round.upload import UpdateEncoder, make_upload
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SAMPLES_BYTES, SharesShape

_NOT_PASSED_ON = "the platform has not passed on an upload of yours for this round"


class _ChainReader:
    """Whoever holds the model: reads one average after the other, each from the one before."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle, audience: str) -> None:
        bundle.require_ring(shape.widths.k)
        self.party, self.fingerprint, self._shape = party, bundle.fingerprint, shape
        self._reader = AverageReader(shape, audience, AudienceKey(bundle.audience), bundle.csp_signing)
        self._model: ModelChain | None = None

    def resume(self, chain: bytes | None, initial: npt.NDArray[np.float64]) -> None:
        spec, step = self._shape.spec, self._shape.step
        if chain is None:
            self._model = ModelChain.start(spec.name, initial, self._shape.widths.unit, step)
        else:
            self._model = ModelChain.from_bytes(chain, spec.parameters, step)

    def chain(self) -> bytes | None:
        return None if self._model is None else self._model.to_bytes()

    def read(self, publication: bytes, round_number: int) -> Average:
        opened = self._reader.read(publication, round_number, self._followed())
        self._model = opened.chain
        unit, standing = self._shape.widths.unit, self._standing(opened)
        if self._shape.step is None:
            return Average(opened.average / unit, opened.total, standing)
        model, state = opened.chain.weights / unit, opened.chain.digest()
        return Average(opened.average / unit, opened.total, standing, model, state)

    def _followed(self) -> ModelChain:
        if self._model is None:
            raise NotReady("the model that this reader holds is not known: `follow` it from the initial weights first")
        return self._model

    def _standing(self, opened: OpenedAverage) -> str | None:
        del opened
        return None


class SharesRequester(_ChainReader):
    """The requester reads every average, the last one too."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle) -> None:
        super().__init__(party, shape, bundle, REQUESTER)


class SharesParticipant(_ChainReader):
    """A phone."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesReaderBundle, keys: ParticipantKeys) -> None:
        super().__init__(party, shape, bundle, PARTICIPANTS)
        self.who, self._keys, self.bundle = keys.who, keys, bundle
        self._encoder = UpdateEncoder(shape)
        self._envelopes: dict[int, RewardEnvelope] = {}
        self._amounts: dict[int, int] = {}

    @property
    def clipped(self) -> int:
        return self._encoder.clipped

    @property
    def scaled(self) -> float | None:
        return self._encoder.scaled

    def upload_randomizers(self) -> int:
        return 0

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        """SP's shares of the change since the model that is held, and the seed of CSP's, sealed; that is fresh each time."""
        samples, model = whole_samples(samples), self._followed()
        update = self._encoder.encode(weights, model, samples)
        place = self._shape.place(round_number, model.base)
        signing, sealing = self._keys.signing, self.bundle.csp_sealing
        return self.party.send(make_upload(self._shape, place, self.who, signing, sealing, update, samples))

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        """Millionths; one outside the round's budget is refused, and in no claim."""
        self._shape.require_rewards()
        message = RewardEnvelope.from_bytes(envelope, self._shape.limits())
        context, csp_key = self._shape.spec.context(round_number), self.bundle.csp_signing
        reward = claims.open_reward(
            message, self._keys.reader, csp_key, context, self.who, SAMPLES_BYTES, REWARD_MODULUS
        )
        amount = claims.payable(reward, 0, self._shape.payment)
        self._envelopes[round_number], self._amounts[round_number] = message, amount
        return amount

    def claim(self) -> bytes:
        self._shape.require_rewards()
        task, signing = self._shape.spec.name, self._keys.signing
        return self.party.send(claims.make_claim(task, self.who, self._amounts, self._envelopes, signing))

    def _standing(self, opened: OpenedAverage) -> str | None:
        if self.who in opened.members.accepted:
            return None
        return opened.members.rejected.get(self.who, _NOT_PASSED_ON)
