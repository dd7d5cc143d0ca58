"""Uploads opened with both halves, as nobody in a campaign can: SP's share from the body, CSP's from the sealed seed.

A test that owns every role's files can, and compares what was averaged with what people really sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.chain import Integers, rounded_quotient
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.round.upload import UploadBody, expanded_samples, expanded_update, open_seed
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape


@dataclass(frozen=True)
class OpenedUpload:
    """What one participant sent for one round: its change times its samples, in units of 10^-decimals."""

    who: str
    base: bytes
    update: Integers
    samples: int

    def change(self, unit: int) -> np.ndarray:
        """What training changed, as it was counted."""
        return self.update / self.samples / unit


@dataclass(frozen=True)
class BothHalves:
    """CSP's key beside uploads that SP has."""

    spec: TaskSpec
    csp_bundle: bytes

    def open(self, upload: bytes) -> OpenedUpload:
        """The plain numbers of an upload."""
        shape = SharesShape(self.spec)
        body = UploadBody.from_bytes(upload, shape.limits())
        sealing = ReaderKey(SharesCspBundle.from_bytes(self.csp_bundle, Limits.plain()).sealing)
        seed = open_seed(sealing, body.place, body.who, body.digest, body.sealed)
        ring = shape.ring
        mine, theirs = (
            ring.decode(body.shares),
            ring.decode(expanded_update(seed, body.place, body.who, shape.share_bytes)),
        )
        counted = int.from_bytes(body.samples, "little") + expanded_samples(seed, body.place, body.who)
        return OpenedUpload(body.who, body.base, ring.signed(ring.reduced(mine + theirs)), counted % REWARD_MODULUS)


def average_change(uploads: Sequence[OpenedUpload]) -> Integers:
    """The oracle's: what every reader must add to its model, to the last integer."""
    sums = np.sum([upload.update for upload in uploads], axis=0)
    return rounded_quotient(sums, sum(upload.samples for upload in uploads))
