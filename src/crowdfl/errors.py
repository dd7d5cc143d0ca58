"""Every error that CrowdFL raises on purpose.

    CrowdFLError
    ├── KeyMaterialError            something is wrong with a key
    │   ├── InsecureKeyRefused      the key is too short and nobody asked for a test key
    │   ├── InvalidKey              the numbers do not form a key
    │   ├── KeyMismatch             two values belong to different keys
    │   ├── SharesDoNotMatch        two partial decryptions do not fit together
    │   └── KeyFileError            a key file cannot be used
    │       ├── KeyFileMissing
    │       ├── KeyFileExists
    │       ├── KeyFilePermissions  others could read the file
    │       ├── KeyFileDamaged      truncated or altered
    │       ├── KeyFileVersion      written by another version
    │       ├── KeyFileRole         holds the keys of another role
    │       └── PassphraseError     needed, or wrong
    ├── CiphertextError             not a ciphertext under this key
    │   ├── CiphertextOutOfRange    zero, or not below N^2
    │   └── NotAUnit                shares a factor with N
    ├── PlaintextOutOfRange         not in (-N/2, N/2)
    ├── EncodingError               a model cannot be encoded
    │   └── NotFinite               NaN or infinity
    ├── WidthError                  a number does not fit its place
    │   ├── WidthBudgetExceeded     the task's bounds cannot be packed
    │   ├── SlotOverflow            a value is outside its slot's bound
    │   └── TooManyUploads          one more upload than the width budget allows
    ├── LengthMismatch              two vectors differ in length
    ├── FormatError                 bytes that are not what they should be
    │   ├── Truncated
    │   ├── TrailingBytes
    │   ├── UnsupportedVersion
    │   └── LimitExceeded           longer than the receiver allows
    ├── PoolError                   a pool of randomizers cannot be used
    │   ├── PoolExhausted
    │   └── PoolDamaged
    ├── SealBroken                  a sealed message is not for this reader, or was altered
    ├── BadSignature                a signature does not fit
    ├── SettingsError               a task's settings do not make sense
    ├── ProtocolError               a step cannot go on
    │   ├── NothingToAverage        nobody contributed a sample
    │   ├── TooFewParticipants      a result of so few would give someone away
    │   ├── SeedReused              a mask seed would serve a second sum
    │   ├── RoundsExhausted         more rounds than the task's bounds were computed for
    │   ├── RewardsOff              the task was made without rewards
    │   ├── ModelMismatch           an update's arrays are not the task's
    │   ├── AlreadyCounted          this participant's upload is in, with other bytes
    │   └── ClaimRefused            a claim does not stand
    │       ├── WrongAmount
    │       ├── MasksDoNotFit       not the masks that were committed to
    │       └── AlreadyPaid
    ├── CampaignError               a campaign's rules forbid it now
    │   ├── DocumentError           a signed document is not what it should be
    │   ├── UnknownTask             no such task here
    │   ├── UnknownParticipant      nobody of that name is enrolled
    │   ├── InvitationRefused       used, expired, or for another task
    │   ├── TaskFull                every place is taken
    │   ├── TaskNotRunning          paused, cancelled or over
    │   ├── NotReady             ask again later
    │   ├── Conflict                the same name with other contents
    │   │   └── LedgerConflict      a movement of that name was made with other contents
    │   ├── Forbidden               not for this caller
    │   ├── RoundNotOpen            this round takes no uploads any more
    │   ├── TooLate                 the upload missed its round
    │   └── NotEnoughMoney          an account does not hold what is asked of it
    ├── LearningError               data or models cannot be used for training
    │   ├── DataMissing             a data set, or a person in it, is not there
    │   ├── DataAltered             a data file is not the one it should be
    │   ├── DataMalformed           windows and labels do not fit together
    │   └── LearningUnavailable     a package that training needs is not installed
    ├── StoreError                  a database cannot be used
    │   ├── StoreUnavailable        it cannot be reached, or is locked for too long
    │   ├── StoreOutdated           it lacks tables or columns that this program needs
    │   └── StoreTooNew             a newer program has changed it
    ├── ServiceError                a service refuses, or cannot be used
    │   ├── NotAuthenticated        no credential, or none that is known
    │   ├── WrongProtocol           the other side speaks another version
    │   ├── PlainHttpRefused        without TLS, where nobody asked for it or off loopback
    │   ├── StorageFull             the service has no room left on its disk
    │   ├── TooSlow                 a request came in more slowly than anyone is waited for
    │   └── ServiceUnavailable      no answer, or none that can be used
    ├── BackendUnavailable          the place to compute that was asked for is not there
    │   ├── ClusterTaken            the cluster works for another role
    │   └── ClusterUnprotected      a cluster without TLS, where nobody asked for it or off loopback
    ├── PeerUnavailable             a benchmark peer is not installed or failed
    ├── PackageMissing              a command needs a package that is not installed
    ├── ExperimentUnavailable       a package that an experiment needs is not installed
    └── Cancelled                   long work was told to stop

A message says what was wrong and what to do; none ever holds secret material.
"""

__all__ = [
    "AlreadyCounted",
    "AlreadyPaid",
    "BackendUnavailable",
    "BadSignature",
    "CampaignError",
    "Cancelled",
    "CiphertextError",
    "CiphertextOutOfRange",
    "ClaimRefused",
    "ClusterTaken",
    "ClusterUnprotected",
    "Conflict",
    "CrowdFLError",
    "DataAltered",
    "DataMalformed",
    "DataMissing",
    "DocumentError",
    "EncodingError",
    "ExperimentUnavailable",
    "Forbidden",
    "FormatError",
    "InsecureKeyRefused",
    "InvalidKey",
    "InvitationRefused",
    "KeyFileDamaged",
    "KeyFileError",
    "KeyFileExists",
    "KeyFileMissing",
    "KeyFilePermissions",
    "KeyFileRole",
    "KeyFileVersion",
    "KeyMaterialError",
    "KeyMismatch",
    "LearningError",
    "LearningUnavailable",
    "LedgerConflict",
    "LengthMismatch",
    "LimitExceeded",
    "MasksDoNotFit",
    "ModelMismatch",
    "NotAUnit",
    "NotAuthenticated",
    "NotEnoughMoney",
    "NotFinite",
    "NotReady",
    "NothingToAverage",
    "PackageMissing",
    "PassphraseError",
    "PeerUnavailable",
    "PlainHttpRefused",
    "PlaintextOutOfRange",
    "PoolDamaged",
    "PoolError",
    "PoolExhausted",
    "ProtocolError",
    "RewardsOff",
    "RoundNotOpen",
    "RoundsExhausted",
    "SealBroken",
    "SeedReused",
    "ServiceError",
    "ServiceUnavailable",
    "SettingsError",
    "SharesDoNotMatch",
    "SlotOverflow",
    "StorageFull",
    "StoreError",
    "StoreOutdated",
    "StoreTooNew",
    "StoreUnavailable",
    "TaskFull",
    "TaskNotRunning",
    "TooFewParticipants",
    "TooLate",
    "TooManyUploads",
    "TooSlow",
    "TrailingBytes",
    "Truncated",
    "UnknownParticipant",
    "UnknownTask",
    "UnsupportedVersion",
    "WidthBudgetExceeded",
    "WidthError",
    "WrongAmount",
    "WrongProtocol",
]


class CrowdFLError(Exception):
    """Root of the tree: catch this to catch everything CrowdFL raises on purpose."""


class KeyMaterialError(CrowdFLError):
    """Something is wrong with a key."""


class InsecureKeyRefused(KeyMaterialError):
    """The key is too short for use, and the caller did not ask for a test key."""


class InvalidKey(KeyMaterialError):
    """The numbers given do not form a key."""


class KeyMismatch(KeyMaterialError):
    """Two values belong to different keys."""


class SharesDoNotMatch(KeyMaterialError):
    """Two partial decryptions do not come from the two shares of one key, or not of one ciphertext."""


class KeyFileError(KeyMaterialError):
    """A key file cannot be used."""


class KeyFileMissing(KeyFileError):
    """There is no key file at that path."""


class KeyFileExists(KeyFileError):
    """A key file is already there, and overwriting a key loses it."""


class KeyFilePermissions(KeyFileError):
    """Someone other than the owner could read the key file."""


class KeyFileDamaged(KeyFileError):
    """The key file is truncated or altered."""


class KeyFileVersion(KeyFileError):
    """The key file was written in a version this program does not read."""


class KeyFileRole(KeyFileError):
    """The key file holds the keys of another role."""


class PassphraseError(KeyFileError):
    """The passphrase is missing, not wanted, or wrong."""


class CiphertextError(CrowdFLError):
    """A number is not a ciphertext under this key."""


class CiphertextOutOfRange(CiphertextError):
    """A ciphertext is zero, negative, or not below N^2."""


class NotAUnit(CiphertextError):
    """A ciphertext shares a factor with N."""


class PlaintextOutOfRange(CrowdFLError):
    """A plaintext or scalar is outside (-N/2, N/2)."""


class EncodingError(CrowdFLError):
    """A model cannot be encoded as integers."""


class NotFinite(EncodingError):
    """A weight is NaN or infinite."""


class WidthError(CrowdFLError):
    """A number does not fit the place meant for it."""


class WidthBudgetExceeded(WidthError):
    """The bounds of a task cannot be packed under its key."""


class SlotOverflow(WidthError):
    """A value is outside the bound of its slot."""


class TooManyUploads(WidthError):
    """One more upload than the width budget allows."""


class LengthMismatch(CrowdFLError):
    """Two vectors that must be equally long are not."""


class FormatError(CrowdFLError):
    """Bytes are not what they should be."""


class Truncated(FormatError):
    """The bytes end too early."""


class TrailingBytes(FormatError):
    """There are bytes after the end."""


class UnsupportedVersion(FormatError):
    """The bytes are of a version this program does not read."""


class LimitExceeded(FormatError):
    """The bytes announce more than the receiver allows."""


class PoolError(CrowdFLError):
    """A pool of randomizers cannot be used."""


class PoolExhausted(PoolError):
    """The pool holds fewer randomizers than were asked for."""


class PoolDamaged(PoolError):
    """The pool's file is truncated or altered."""


class SealBroken(CrowdFLError):
    """A sealed message is not for this reader or this place, or was altered."""


class BadSignature(CrowdFLError):
    """A signature does not fit the message and its claimed signer."""


class SettingsError(CrowdFLError):
    """A task's settings do not make sense."""


class ProtocolError(CrowdFLError):
    """A protocol step cannot go on."""


class NothingToAverage(ProtocolError):
    """Nobody contributed a sample."""


class TooFewParticipants(ProtocolError):
    """A result of so few participants would give one of them away."""


class SeedReused(ProtocolError):
    """A mask seed would serve a second sum."""


class RoundsExhausted(ProtocolError):
    """More rounds than the task's bounds were computed for."""


class RewardsOff(ProtocolError):
    """The task was made without rewards."""


class ModelMismatch(ProtocolError):
    """An update's arrays are not those of the task."""


class AlreadyCounted(ProtocolError):
    """This participant's upload is in already, with other bytes."""


class ClaimRefused(ProtocolError):
    """A claim does not stand."""


class WrongAmount(ClaimRefused):
    """The amount claimed is not the amount earned."""


class MasksDoNotFit(ClaimRefused):
    """The masks shown are not those that were committed to."""


class AlreadyPaid(ClaimRefused):
    """The claim was paid already."""


class CampaignError(CrowdFLError):
    """A campaign's rules forbid it now."""


class DocumentError(CampaignError):
    """A signed document is not what it should be."""


class UnknownTask(CampaignError):
    """There is no such task here."""


class UnknownParticipant(CampaignError):
    """Nobody of that name is enrolled in the task."""


class InvitationRefused(CampaignError):
    """The invitation is used, expired, or for another task."""


class TaskFull(CampaignError):
    """Every place of the task is taken."""


class TaskNotRunning(CampaignError):
    """The task is paused, cancelled or over."""


class NotReady(CampaignError):
    """What was asked for does not exist yet: ask again later."""


class Conflict(CampaignError):
    """The same name was used with other contents."""


class Forbidden(CampaignError):
    """This is not for this caller."""


class RoundNotOpen(CampaignError):
    """This round takes no uploads any more."""


class TooLate(CampaignError):
    """The upload missed its round."""


class NotEnoughMoney(CampaignError):
    """An account does not hold what is asked of it."""


class LedgerConflict(Conflict):
    """A movement of that name was made with other contents."""


class LearningError(CrowdFLError):
    """Data or models cannot be used for training."""


class DataMissing(LearningError):
    """A data set, or a person in it, is not there."""


class DataAltered(LearningError):
    """A data file is not the one it should be."""


class DataMalformed(LearningError):
    """Windows and labels do not fit together."""


class LearningUnavailable(LearningError):
    """A package that training needs is not installed."""


class PackageMissing(CrowdFLError):
    """A package that a command needs is not installed."""


class StoreError(CrowdFLError):
    """A database cannot be used."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or stays locked for too long."""


class StoreOutdated(StoreError):
    """The database lacks tables or columns that this program needs: migrate it."""


class StoreTooNew(StoreError):
    """A newer program has changed the database: update this one."""


class ServiceError(CrowdFLError):
    """A service refuses, or cannot be used."""


class NotAuthenticated(ServiceError):
    """The request carries no credential, or none that is known here."""


class WrongProtocol(ServiceError):
    """The other side speaks another version of the protocol between roles."""


class PlainHttpRefused(ServiceError):
    """Without TLS, where nobody asked for it or off loopback."""


class StorageFull(ServiceError):
    """The service has no room left on its disk."""


class TooSlow(ServiceError):
    """The request came in too slowly: whoever holds a place for others must use it."""


class ServiceUnavailable(ServiceError):
    """A service gives no answer, or none that can be used: try again later."""


class PeerUnavailable(CrowdFLError):
    """A benchmark peer is not installed, or failed."""


class ExperimentUnavailable(CrowdFLError):
    """A package that an experiment needs is not installed, or it has no such setting."""


class BackendUnavailable(CrowdFLError):
    """The place to compute that was asked for is not there."""


class ClusterTaken(BackendUnavailable):
    """The cluster works for another role: each needs its own."""


class ClusterUnprotected(BackendUnavailable):
    """A cluster without TLS, where nobody asked for it or off loopback."""


class Cancelled(CrowdFLError):
    """Long work was told to stop."""
