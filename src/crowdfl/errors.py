"""Every error that CrowdFL raises on purpose, each below the kind that it is one of.

A message says what was wrong and what to do; none ever holds secret material.
"""


class CrowdFLError(Exception):
    """Root of the tree: catch this to catch everything CrowdFL raises on purpose."""

    passes: bool = False  # whether the same may succeed later by itself; of a service's answer, its status says so too


class KeyMaterialError(CrowdFLError):
    """Something is wrong with a key."""


class InsecureKeyRefused(KeyMaterialError):
    """The key is too short, and the caller did not ask for a test key."""


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
    """A key file exists already, and overwriting a key loses it."""


class KeyFilePermissions(KeyFileError):
    """Someone other than the owner could read the key file."""


class KeyFileDamaged(KeyFileError):
    """The key file is truncated or altered."""


class KeyFileRole(KeyFileError):
    """The key file holds the keys of another role."""


class PassphraseError(KeyFileError):
    """The passphrase is missing, not expected, or wrong."""


class CiphertextError(CrowdFLError):
    """A number is not a ciphertext under this key."""


class CiphertextOutOfRange(CiphertextError):
    """A ciphertext is zero, negative, or not below N^2."""


class NotAUnit(CiphertextError):
    """A ciphertext shares a factor with N."""


class PlaintextOutOfRange(CrowdFLError):
    """A plaintext or scalar is outside (-N/2, N/2)."""


class NotAnInteger(CrowdFLError):
    """A float, a text or a truth value was given where an integer is expected."""


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
    """More uploads than the width budget allows."""


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


class UploadDamaged(FormatError):
    """The file of an upload is missing, or does not hold what was acknowledged."""


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
    """The settings are invalid."""

    def __init__(self, words: str = "", faults: dict[str, str] | None = None) -> None:
        super().__init__(words)
        self.faults = faults or {}  # every setting that is wrong, by name; empty where a rule is about several


class ProtocolError(CrowdFLError):
    """A protocol step cannot go on."""


class NothingToAverage(ProtocolError):
    """Nobody contributed a sample."""


class NothingToContribute(ProtocolError):
    """A participant has no sample for this round, and an upload without one is not made."""


class TooFewParticipants(ProtocolError):
    """A result of so few participants would reveal one of them."""


class SeedReused(ProtocolError):
    """A mask seed would serve a second sum."""


class RoundsExhausted(ProtocolError):
    """More rounds than the task's bounds were computed for."""


class RewardsOff(ProtocolError):
    """The task was made without rewards."""


class ModelMismatch(ProtocolError):
    """An update's arrays are not those of the task."""


class AlreadyCounted(ProtocolError):
    """This participant has another upload in the round already, or the same bytes were uploaded before."""


class OutOfTurn(ProtocolError):
    """A request that is not the next step of its round, or not the one that this step was answered for."""


class RoundEnded(ProtocolError):
    """CSP answers this round no more: the round is void."""

    def __init__(self, words: str, reason: str = "") -> None:
        super().__init__(words)
        self.reason = reason  # `reasons.Reason`, where the servers agree on one
        self.rejected: dict[str, str] = {}  # whose uploads the servers had left out by then, and why (`reasons.Reason`)


class ReplyLost(RoundEnded):
    """A reply of CSP that a round was computed with is missing or altered: no other may take its place, the round is void."""


class DealtMaterialDamaged(RoundEnded):
    """What KGC dealt for a round is missing, truncated, altered, or was used before: the round cannot be computed."""


class BaseSpent(RoundEnded):
    """A sum of updates to this very model was opened before: a second one could single somebody out."""


class WrongBase(ProtocolError):
    """An update to another model than the one that this round starts from."""


class ChainBroken(ProtocolError):
    """A published average does not follow from those before it."""


class RolledBack(ChainBroken):
    """A server shows another history than CSP's signed records or its own notes: it was set back, or cheats. The task ends."""

    is_own = False  # as a server's own notes show


class UploadRejected(ProtocolError):
    """Both servers together left this upload out."""

    def __init__(self, words: str, reason: str = "") -> None:
        super().__init__(words)
        self.reason = reason  # a code (`reasons.Reason`); empty where nobody says one


class RewardOutOfRange(ProtocolError):
    """A reward below zero or above the round's budget: somebody in that round has cheated."""


class ClaimRefused(ProtocolError):
    """A claim is not accepted."""


class WrongAmount(ClaimRefused):
    """The amount claimed is not the amount earned."""


class MasksDoNotFit(ClaimRefused):
    """The masks shown are not those that were committed to."""


class OlderDestination(ClaimRefused):
    """The claim names a place to be paid that its owner has replaced."""


class CampaignError(CrowdFLError):
    """A campaign's rules forbid it now."""


class DocumentError(CampaignError):
    """A signed document is not what it should be."""


class FormTooNew(DocumentError):
    """A document of a later form than this version reads: update it."""


class UnknownTask(CampaignError):
    """There is no such task here."""


class TaskUnreadable(CampaignError):
    """Something that is kept of this task cannot be read by this version: it stands still, and nothing of it is lost."""

    def __init__(self, words: str, why: str = "") -> None:
        super().__init__(words)
        self.why = why


class QuotaExceeded(CampaignError):
    """A task asks for more than this service grants, or its requester has too many."""


class UnknownParticipant(CampaignError):
    """Nobody of that name is enrolled in the task."""


class InvitationRefused(CampaignError):
    """The invitation is used, expired, or for another task."""


class ConsentMissing(CampaignError):
    """The task asks for a signed consent, and there is none."""


class TaskFull(CampaignError):
    """Every place of the task is taken."""


class TooManyJoins(CampaignError):
    """More places were asked for than this platform gives out in an hour: come back later."""


class EnrolmentOver(CampaignError):
    """The task's plan lets nobody join any more."""


class TaskNotRunning(CampaignError):
    """The task is paused, cancelled or over."""


class TaskEnded(TaskNotRunning):
    """The task is over, and what it needed was erased: nothing of it is computed any more."""


class NotReady(CampaignError):
    """What was asked for does not exist yet: ask again later."""


class Conflict(CampaignError):
    """The same name was used with other contents."""


class Overtaken(Conflict):
    """Another process has set a record that was read: look again."""


class LedgerConflict(Conflict):
    """A movement of that name was made with other contents."""


class TakingPartStopped(CampaignError):
    """Somebody takes no further part in this program: it was stopped, or the local servers have ended."""


class Forbidden(CampaignError):
    """This is not for this caller."""


class Replaced(Forbidden):
    """Another device has taken this one's place in the task."""


class PlaceFreed(Forbidden):
    """A round went by without an upload of this participant's, and others may have its place: join again."""


class Withdrawn(Forbidden):
    """This participant has withdrawn from the task, for good."""


class RoundNotOpen(CampaignError):
    """This round takes no uploads any more."""


class NotDrawn(CampaignError):
    """Others were drawn for this round: come back for the next one."""


class TooLate(CampaignError):
    """The upload missed its round."""


class TaskNotEnded(CampaignError):
    """The task is not over, or rewards can still be claimed: nothing of it is erased."""


class NotEnoughMoney(CampaignError):
    """An account does not hold enough money."""


class UnknownDeposit(CampaignError):
    """The task has no deposit of that name."""


class DepositRefused(CampaignError):
    """The deposit was announced with another amount, or was decided otherwise before."""


class WrongCurrency(DepositRefused):
    """The money is in another currency than the task's."""


class UnknownPayment(CampaignError):
    """The task has no such payment."""


class NoDestination(CampaignError):
    """Nobody knows where somebody wants to be paid, so that nobody can say without a word how that was done."""


class PayoutRefused(CampaignError):
    """What SP shows of a payment does not fit what others have signed, or what was paid before."""


class PaymentError(CampaignError):
    """A payment was not made, or nobody knows whether it was."""


class PaymentFailed(PaymentError):
    """The payout program says that it did not pay: it can be run again."""


class PaymentUnknown(PaymentError):
    """The payout program may have paid or not: check with your bank before it is run again."""


class LearningError(CrowdFLError):
    """Data or models cannot be used for training."""


class DataMissing(LearningError):
    """A data set, or a person in it, is not there."""


class DataAltered(LearningError):
    """A data file is not the one it should be."""


class DataMalformed(LearningError):
    """Windows and labels do not fit together."""


class WorkerDied(LearningError):
    """A process that trained people in a simulation has ended by itself."""


class OwnCodeError(LearningError):
    """A learner or loss that the user has named does not do what it must, or failed."""


class LearningUnavailable(LearningError):
    """A package that training needs is not installed."""


class PackageMissing(CrowdFLError):
    """A package that a command needs is not installed."""


class StoreError(CrowdFLError):
    """A database cannot be used."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or stays locked for too long."""

    passes = True


class GuardMissing(StoreUnavailable):
    """A server's notes of its steps are not there, or not all: no step is taken until its operator has acted."""


class StoreExposed(StoreError):
    """Someone other than the owner could read the database's file, which holds secrets."""


class StoreOutdated(StoreError):
    """The database lacks tables or columns that this program needs: migrate it."""


class StoreTooNew(StoreError):
    """A newer program has changed the database: update this one."""


class StoreUnreadable(StoreError):
    """This version could not read something after its migrations: nothing was changed."""


class BackupError(CrowdFLError):
    """A backup cannot be made or restored."""


class BackupDamaged(BackupError):
    """The archive is truncated, altered, or not a backup."""


class BackupRefused(BackupError):
    """There is something already where the backup, or what it holds, would go; or nobody has said that it should go there."""


class ServiceError(CrowdFLError):
    """A service refuses, or cannot be used."""


class NotAuthenticated(ServiceError):
    """The request carries no credential, or none that is known here."""


class TokenExpired(NotAuthenticated):
    """The token was good until a time that has passed."""


class KeyNotProven(NotAuthenticated):
    """The connection does not prove the key that this service knows of the token's role."""


class WrongProtocol(ServiceError):
    """The other side speaks another version of the protocol between roles."""


class PlainHttpRefused(ServiceError):
    """Plain HTTP is allowed on loopback only, and only where the settings ask for it."""


class StorageFull(ServiceError):
    """The service has no room left on its disk."""

    passes = True


class TooSlow(ServiceError):
    """The request came in too slowly: send it faster, or in smaller pieces."""

    passes = True


class ServiceUnavailable(ServiceError):
    """A service gives no answer, or none that can be used: try again later."""

    passes = True


class ReplyUnreadable(ServiceUnavailable):
    """A peer's answer is not the message that its step has, or is too long: nothing of it is kept, and it is asked again."""


class ClockInDoubt(ServiceUnavailable):
    """The service's clock has jumped and nobody has confirmed it: try again later."""


class BackendUnavailable(CrowdFLError):
    """The compute backend that was asked for is not available."""


class ClusterTaken(BackendUnavailable):
    """The cluster works for another role: each needs its own."""


class ClusterUnprotected(BackendUnavailable):
    """A cluster without TLS is allowed on loopback only, and only where the settings ask for it."""


class Cancelled(CrowdFLError):
    """Long work was told to stop."""


__all__ = [name for name, value in sorted(vars().items()) if isinstance(value, type)]
