// Everything that an agent takes from the protocol: a test may put something simple in its place.

export { readPublication, readRecord, standing } from "../protocol/average.js";
export { readEnd } from "../protocol/ends.js";
export { openBundle } from "../protocol/bundle.js";
export { concat, hex, sha256 } from "../protocol/bytes.js";
export { chainFromBytes, chainToBytes, chainWeights, startChain, stateDigest } from "../protocol/chain.js";
export {
  checkConsentReceipt, checkReceipt, consentCopy, enrolmentRequest, openAppointment, openDefinition, openEnrolled, openExtension, openRecruited, requireKey,
  signConsent, takesPlace,
} from "../protocol/documents.js";
export { checkDestination, sealDestination } from "../protocol/destination.js";
export { newKeys, newTicketKey } from "../protocol/keys.js";
export { BONUS, checkPlaceKept, makeClaim, placeNote, openReward, recordIn, rewardBy } from "../protocol/rewards.js";
export { readSafetensors } from "../protocol/safetensors.js";
export { requireCompany, sharesTask } from "../protocol/settings.js";
export { makeUpload } from "../protocol/upload.js";
