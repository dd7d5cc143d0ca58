"""PPFDL's averaging, as the paper compared it: one iteration (K = 1), SDIV in place of SecDiv, PCTD in place of Paillier.

Written from the paper's table 4, whose counts for one parameter it meets exactly: an initial mean of all models;
each user's squared distance from it; reliabilities, the sum of the distances over each; and the mean weighed by those. A
reliability is a user's, over all parameters together, as in Xu et al.; the table, for one parameter, leaves that open.
"""

from collections.abc import Generator, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend
from crowdfl.crypto.encoding import FixedPoint
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.budget import bits
from crowdfl.crypto.paillier.pctd import KeyShare
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.protocols.common.sdiv import PaperSdivCsp, PaperSdivSp, SdivRequest
from crowdfl.protocols.common.smul import PaperSmulCsp, PaperSmulSp
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty

_SIGMA, _DECIMALS = 80, 6
_RELIABILITY_BITS = _SIGMA - 2  # at most: the sum over the least distance, at scale 10^L
_Exchange = Generator[bytes, Reply, CipherVector]
_Floats = npt.NDArray[np.float64]


class Ppfdl:
    """Both servers with a share each, users who hold the whole key, and the widths of a task."""

    def __init__(
        self, users: int, parameters: int, key_bits: int, backend: Backend, insecure_test_key: bool = False
    ) -> None:
        keys = pctd.keygen(key_bits // 2, insecure_test_key=insecure_test_key)
        self.private, self.public = keys.private, keys.public
        self.encoding = FixedPoint(_DECIMALS, 16.0, "floor")  # as in the profile `paper`
        # The split as printed, as in the profile `paper`: what is compared is the averaging, under the same shares.
        roles = zip(("SP", "CSP", "user"), (*keys.private.split_as_printed(), None), strict=True)
        self.sp, self.csp, self.user = (KeyedParty(who, keys.public, share, backend=backend) for who, share in roles)
        self._parameters, count = parameters, users * parameters
        self._sdiv_csp = PaperSdivCsp(self.csp, decimals=_DECIMALS, max_count=count)
        self._smul_csp = PaperSmulCsp(self.csp, max_count=count)

    def encrypt(self, weights: _Floats) -> CipherVector:
        vector = self.user.encrypt(self.encoding.encode(weights).values.tolist())
        self.user.costs.messages += 1
        return vector

    def decrypt(self, average: CipherVector) -> _Floats:
        """A user reads the average, at scale 10^2L: one Dec per parameter, with the whole key."""
        self.user.costs.count("Dec", len(average))
        powers = average.partial_decrypt(KeyShare(self.public, self.private.lambda_), backend=self.user.backend)
        n, u = self.public.n, self.private.u
        values = [self.public.signed((power - 1) // n * u % n) for power in to_ints(powers.block)]
        return np.array(values, dtype=np.float64) / self.encoding.scale**2

    def average(self, uploads: Sequence[CipherVector]) -> _Exchange:
        """SP's side: yields requests for CSP, returns the encrypted average."""
        sp = self.sp
        n = len(uploads)
        scale = self.encoding.scale
        size = self._parameters
        # The initial mean: (n-1) PAdd and a PMul by 1/n, at scale 10^L more than the models.
        mean = sp.scale(reduce(sp.add, uploads), round(scale / n))
        # Distances: n PAdd and n PMul bring the models to that scale and take the mean off; n SMUL square.
        negative, width = mean.negate(backend=sp.compute), 2 * self.encoding.bound * scale
        differences = [sp.add(sp.scale(upload, scale), negative) for upload in uploads]
        squares = yield from self._smul(bits(width), differences, differences)
        distances = [sp.sum(square) for square in squares]
        # Reliabilities: (n-1) PAdd and n SDIV.
        totals = CipherVector.concat([reduce(sp.add, distances)] * n)
        reliabilities = yield from self._sdiv(bits(n * size * width**2), totals, CipherVector.concat(distances))
        repeated = [CipherVector.concat([reliabilities.part(i, i + 1)] * size) for i in range(n)]
        weighed_bits = _RELIABILITY_BITS + bits(self.encoding.bound)
        weighed = yield from self._smul(weighed_bits, repeated, list(uploads))
        # The weighed mean: (n-1) PAdd twice, and one SDIV a parameter.
        sums, whole = reduce(sp.add, weighed), sp.sum(reliabilities)
        return (yield from self._sdiv(weighed_bits + bits(n), sums, CipherVector.concat([whole] * size)))

    def answer(self, request: bytes) -> bytes:
        side = self._sdiv_csp if Message.kind_of(request) == SdivRequest.kind else self._smul_csp
        return side.answer(request)

    def _smul(
        self, width: int, x: Sequence[CipherVector], y: Sequence[CipherVector]
    ) -> Generator[bytes, Reply, list[CipherVector]]:
        smul, size = PaperSmulSp(self.sp, mask_bits=width + _SIGMA), self._parameters
        products = yield from smul.run(CipherVector.concat(x), CipherVector.concat(y), Coins.fresh())
        return [products.part(i * size, (i + 1) * size) for i in range(len(x))]

    def _sdiv(self, kappa: int, x: CipherVector, y: CipherVector) -> _Exchange:
        sdiv = PaperSdivSp(self.sp, kappa=kappa, sigma=_SIGMA, decimals=_DECIMALS)
        return (yield from sdiv.run(x, y, Coins.fresh()))
