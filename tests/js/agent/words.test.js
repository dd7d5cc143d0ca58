// Every branch of a phone on SP's word, with what overrules that word, or why nothing does. A branch that is not here fails.

import assert from "node:assert/strict";
import { test } from "node:test";

import { branches } from "./branches.js";

const RECORD = "CSP's record of the round, which is read whatever SP says of it";
const ENDED = "CSP's record of each round, and its end of one that was given up: nothing is sent without them";
const SIGNED = "it is signed by whoever it comes from, or named by its hash in what is";
const OWN = "not SP's word: this device's own";
const LEFT = "this device's own note that its owner has left: nothing is trained or sent then, whatever SP says of the task";
const TIME = "none: SP may stay silent as well; it is looked at again, by this device's own clock";
const JOINING = "none: SP lets nobody in whom it does not want; nothing is made before";
const DRAWN = "none: SP chooses who is drawn, as stated; nothing is made before";
const PAID = "the claim, kept as it was sent, and the rewards, by what CSP has signed; SP keeps the books";
const DAY = "the last day of claims, as the requester or CSP has signed it: before it, SP is asked again";
const SHOWN = "none: it is shown to the owner, and nothing is decided by it";
const REMINDING = "none: a convenience";

/** By file and function: the words that it hears, and what overrules them. @type {Record<string, [string, string]>} */
const BRANCHES = {
  "agent.js _claim": ["ClaimRefused NotAuthenticated NotReady TooLate", PAID],
  "agent.js _enrol": ["TaskNotRunning", TIME],
  "agent.js _farewell": ["Forgotten", OWN],
  "agent.js _finish": ["left", OWN],
  "agent.js _isOwedWords": ["left", OWN],
  "agent.js _patiently": ["NotAuthenticated", TIME],
  "agent.js _run": ["Forgotten", OWN],
  "agent.js remind": ["offers remind", REMINDING],
  "agent.js stopReminding": ["stopReminding", REMINDING],
  "agent.js _askPay": ["Forgotten", OWN],
  "claiming.js askPay": ["pay", "nothing that follows from it: what SP says of money is shown as SP's word"],
  "claiming.js _isOpen": ["rounds state", TIME],
  "claiming.js _noteRefused": ["TooLate", DAY],
  "claiming.js _send": ["claim", PAID],
  "claiming.js claim": ["ClaimRefused TooLate settled state", `${DAY}; ${PAID}`],
  "claiming.js epochOf": ["epoch", "none: the same claim is sent again, and comes to the same"],
  "claiming.js tellDifferences": ["rewarded rounds state", RECORD],
  "claiming.js without": ["MasksDoNotFit rewarded rounds", PAID],
  "model.js _initialWeights": ["initial", SIGNED],
  "model.js _opened": ["average", SIGNED],
  "model.js hasCaughtUp": ["number rewarded rounds state", ENDED],
  "model.js read": ["RolledBack", SIGNED],
  "model.js readRecord": ["RolledBack", SIGNED],
  "model.js requireForward": ["paused rewarded rounds running state", RECORD],
  "participant.js _certify": ["enrolAtKgc", SIGNED],
  "participant.js _hearExtension": ["BadSignature DocumentError", SIGNED],
  "participant.js _isSettled": ["aborted rewarded", `${ENDED}: CSP's word is here`],
  "participant.js _keepStatus": ["ended enrolled next_round rounds state", SHOWN],
  "participant.js _noteWithdrawn": ["deleted", RECORD],
  "participant.js _orStop": ["RolledBack", SIGNED],
  "participant.js _papers": ["papers", SIGNED],
  "participant.js _quit": ["quit", RECORD],
  "participant.js _readLast": ["aborted rewarded rounds unused", `${PAID}; ${ENDED}`],
  "participant.js _readLeft": ["aborted rewarded unused", ENDED],
  "participant.js _recruited": ["recruit", SIGNED],
  "participant.js _status": ["claims_extended come_back state", `${SIGNED}; ${TIME}`],
  "participant.js _step": ["dropped epoch rounds", ENDED],
  "participant.js _stepLeft": ["rounds", ENDED],
  "participant.js _stepRound": ["aborted open rewarded unused", ENDED],
  "participant.js step": ["state", LEFT],
  "participant_context.js enrol": ["Replaced enrol", "none: this device sends no more; CSP's records of what it has made are read and paid"],
  "participant_context.js status": ["epoch status", ENDED],
  "pay_to.js kinds": ["offers", SHOWN],
  "pay_to.js send": ["Conflict NotReady", PAID],
  "pay_to.js _place": ["payTo", "CSP's signed word that it keeps this very destination, where its record says what was earned"],
  "rewards.js _note": ["RewardOutOfRange RolledBack ServiceError", "equal parts follow from CSP's record; another reward is waited for, and claimed without at the end"],
  "rewards.js lookBonus": ["ServiceError UploadRejected", "CSP's signed word, which names whoever gets it"],
  "rewards.js hearsay": ["RewardOutOfRange UploadRejected", "the reward, or the word about a bonus, which CSP has signed: SP's word for it is not heard"],
  "rewards.js open": ["reward", SIGNED],
  "status.js closedBy": ["enrolment", JOINING],
  "status.js requireStatus": ["claims_extended come_back ended enrolled enrolment next_round now rounds state", OWN],
  "unpaid.js reasonFor": ["aborted rewarded", SHOWN],
  "uploads.js FINAL": ["AlreadyCounted NotDrawn RoundNotOpen TaskFull TaskNotRunning TooLate WrongBase", RECORD],
  "uploads.js _hearEnd": ["end", SIGNED],
  "uploads.js _isDrawn": ["isDrawn", DRAWN],
  "uploads.js _isLost": ["uploaded uploads", "the first receipt, which is kept, and CSP's record; the same bytes are sent"],
  "uploads.js _noteRefusal": ["Forbidden Replaced", RECORD],
  "uploads.js _sendAsEnrolled": ["NotAuthenticated PlaceFreed UnknownParticipant send", RECORD],
  "uploads.js comeBack": ["dropped epoch number open rounds state", "the first receipt, which is kept, and CSP's record; the same bytes are sent"],
  "uploads.js takePart": ["NothingToContribute drawn number rounds", DRAWN],
};

test("every branch of a phone on SP's word is known, with what overrules it", () => {
  assert.deepEqual(branches(), Object.fromEntries(Object.entries(BRANCHES).map(([place, [words]]) => [place, words])));
});
