// @ts-check
// Everything that an agent takes from the protocol: a test may put something simple in its place.

export { hex, sha256 } from "../protocol/bytes.js";
export { openBundle } from "../protocol/bundle.js";
export { chainFromBytes, chainToBytes, chainWeights, startChain } from "../protocol/chain.js";
export { openAppointment, openDefinition, openReceipt } from "../protocol/documents.js";
export { enrolmentRequest, openEnrolled } from "../protocol/enrolment.js";
export { newKeys } from "../protocol/keys.js";
export { makeUpload } from "../protocol/upload.js";
export { readNpz } from "../protocol/npz.js";
export { readPublication } from "../protocol/average.js";
export { makeClaim, openReward } from "../protocol/rewards.js";
export { sharesTask } from "../protocol/settings.js";
