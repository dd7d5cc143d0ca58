"""Why an upload or a whole round does not count: the codes that records and messages carry, each with its English.

Both servers, phones and pages compare codes. What people read in other languages is in `web/common/text`, by the same codes.
"""

from crowdfl.codes import Code


class Reason(Code):
    """Why an upload or a round does not count."""

    # Of one upload, in CSP's signed word.
    BROKEN_SEAL = "broken_seal", "its seal does not open"
    OUT_OF_BOUNDS = "out_of_bounds", "its number of samples or its size is out of bounds"
    NOT_IN_LINE = "not_in_line", "out of bounds, or not in line with the task"

    # Of a cohort or a round, in CSP's signed word: nothing is opened.
    TOO_FEW_LEFT = "too_few_left", "fewer uploads are within the bounds than the task averages"
    TOO_MANY_LEFT_OUT = (
        "too_many_left_out",
        "more uploads are out of bounds, or cannot be read, than a round may leave out",
    )
    REFERENCE_SEALED = "reference_sealed", "the seal of the requester's reference does not open"
    REFERENCE_UNUSABLE = "reference_unusable", "the requester's reference is zero, or out of bounds"
    ALTERED_BITS = "altered_bits", "SP showed other bits than those it committed to"
    ALTERED_SHARES = (
        "altered_shares",
        "more lanes cannot be used than chance explains: a server has altered its shares",
    )
    CSP_FAILED = (
        "csp_failed",
        "CSP failed after it had seen who is within the bounds: nothing was opened, and nothing will be",
    )

    # Of one upload, by what a record does not say, by SP, or by its owner's device.
    NOT_PASSED_ON = "not_passed_on", "the platform has not passed on an upload of yours for this round"
    VOID_COHORT = (
        "void_cohort",
        "too many of those who were checked with it were out of bounds, or could not be read",
    )
    DAMAGED = "damaged", "its file was damaged on SP, and dropped"
    OUT_OF_RANGE = (
        "out_of_range",
        "this reward is below zero or above the round's budget: somebody in that round has cheated",
    )
    WITHDRAWN = "withdrawn", "you have withdrawn it"


class Void(Code):
    """Why a round was given up, where no `Reason` of CSP's says it; the requester is told."""

    TOO_FEW = "too_few", "too few uploads had come at its end"
    NO_REFERENCE = "no_reference", "the requester's reference did not come"
    CANCELLED = "cancelled", "the task ended while it was open"
    OPERATOR = "operator", "the platform's operator gave it up"
    CSP_ENDED = "csp_ended", "CSP ended the task, or does not know the round any more"
    CSP_REFUSED = "csp_refused", "CSP answers no more about it"
    CSP_AWAY = "csp_away", "CSP gave no answer for too long"
    LOST = "lost", "what a server computes with was damaged or lost"
    RESTORED = "restored", "SP was restored from a backup"
