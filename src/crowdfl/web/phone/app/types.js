// What the views are given. `model.js` makes it; tests put another in its place.

/**
 * What one round was for this phone.
 * @typedef {{
 *   number: number,
 *   state: string,
 *   until: number | null,
 *   mine: "none" | "training" | "sending" | "arrived" | "late" | "unused" | "refused" | "nothing" | "undrawn",
 *   accuracyBefore: number | null,
 *   accuracyAfter: number | null,
 *   reward: bigint | null,
 *   pay?: import("../agent/state.js").PayView | null,
 *   why: string | null,
 *   leftOut?: import("../protocol/reasons.js").Reason | null,
 *   reason?: string | null,
 *   receipt?: string | null,
 *   digest: string | null,
 * }} RoundView `leftOut` and `reason` are codes: why it does not count, and why it pays nothing.
 */

/**
 * As agent/state.js says it. @typedef {import("../agent/state.js").ClaimView} ClaimView
 */

/** @typedef {{ asked: boolean, kinds: string[], kind: string | null, to: string | null, state: "none" | "waiting" | "sent" | "closed", fingerprint: string }} PayToView */

/**
 * What happens right now.
 * @typedef {{ kind: "idle" | "training" | "sending" | "waiting" | "elsewhere", round: number | null, done: number, of: number, why: string | null }} NowView
 */

/**
 * A task's definition, as its requester signed it: the body of the document.
 * @typedef {{
 *   purpose: string, terms: string, readers: string, requester: string, rounds_until: number, claims_until: number,
 *   settings: Record<string, any>, plan: Record<string, any>, who: Record<string, string>, training: Record<string, any>, arrays: [string, number[]][],
 *   texts?: Record<string, any>, payer?: string, recruiter?: string,
 * }} DefinitionBody
 */

/**
 * @typedef {{
 *   task: string,
 *   phase: "invited" | "joined" | "left" | "ended",
 *   definition: DefinitionBody | null,
 *   refusal: string | null,
 *   closed: string | null,
 *   ahead?: number,
 *   expires: number | null,
 *   place?: string,
 *   replaces?: boolean,
 *   sp: string,
 *   kgc: string,
 *   who: string | null,
 *   rounds: RoundView[],
 *   bonus?: RoundView | null,
 *   rewards: bigint,
 *   claim: ClaimView,
 *   payTo: PayToView,
 *   noise: import("../agent/state.js").NoiseView | null,
 *   reminders: boolean,
 *   consent: { version: string, language: string, at: number } | null,
 *   withdrawn: { at: number, deleted: number[], standing: number[] } | null,
 *   replaced: boolean,
 *   receipts: { round: number, text: string }[],
 *   differences: ({ round: number } & import("../agent/evidence.js").Difference)[],
 *   now: NowView,
 *   problem: string | null,
 *   state: string | null,
 *   ended: import("../../web/common/text.js").Ending | null,
 *   next: number | null,
 *   enrolled: number | null,
 *   stopped?: string | null,
 *   recordings: number,
 *   recorded: number,
 *   contributed: number | null,
 * }} Campaign `state` is the task's, when the phone last looked; `ended` says why it ended, `next` when the
 *   next round opens, `enrolled` how many take part, `closed` why nobody can join, `ahead` how many seconds the phone's clock is wrong, `stopped` why this phone takes no
 *   further part; `recordings` is their number, `recorded` changes with them; `contributed` is
 *   how many of them the owner has said to send, null before the first word.
 */

/** One of a task's own questions. @typedef {{ id: string, text: string, choices: string[], use: "label" | "feature" }} Question */
/** What a recording was, and the answers to questions by their ids. @typedef {{ label: string, answers: Record<string, string> }} About */

/**
 * A recording as the list shows it; `said`: its owner wants it to be sent.
 * @typedef {About & { id: string, seconds: number, at: number | null, said: boolean }} RecordingView
 */

/**
 * What a sensor or a file gave: seconds, and samples one after the other in g and 2 rad/s.
 * @typedef {{ times: Float64Array, signal: Float64Array, channels: number }} Samples
 */
/** @typedef {About & Samples & { id: string }} KeptRecording */

/** @typedef {import("../agent/reminders.js").ReminderState} ReminderState */

/**
 * @typedef {{
 *   campaigns(): Campaign[],
 *   lost(): string[],
 *   forgetLost(): void,
 *   get(task: string): Campaign | undefined,
 *   accept(fragment: string): Promise<string>,
 *   look(task: string): Promise<void>,
 *   join(task: string, leastParticipants: number, consentLanguage?: string, allTheSame?: boolean): Promise<void>,
 *   leave(task: string): Promise<void>,
 *   withdraw(task: string): Promise<{ told: boolean }>,
 *   consentCopy(task: string): Promise<{ name: string, text: string } | null>,
 *   evidence(task: string): Promise<{ name: string, text: string } | null>,
 *   ownData(task: string): Promise<{ name: string, text: string }>,
 *   payKinds(task: string): Promise<unknown>,
 *   payTo(task: string, kind: string, to: string): Promise<void>,
 *   reminderState(): Promise<ReminderState>,
 *   remind(task: string, words: import("../agent/reminders.js").Words): Promise<ReminderState>,
 *   stopReminding(task: string): Promise<void>,
 *   forget(task: string): Promise<void>,
 *   forgetAll(): Promise<void>,
 *   claim(task: string): Promise<void>,
 *   retry(task: string): Promise<void>,
 *   recordings(task: string): Promise<RecordingView[]>,
 *   windows(task: string): Promise<{ train: number } | null>,
 *   contribute(task: string): Promise<void>,
 *   keep(task: string, recording: KeptRecording, whole: boolean): Promise<void>,
 *   changeRecording(task: string, id: string, about: About): Promise<void>,
 *   importCsv(task: string, name: string, text: string): Promise<string>,
 *   deleteRecording(task: string, id: string): Promise<void>,
 *   persisted(): Promise<boolean>,
 *   onChange(listener: () => void): () => void,
 * }} Model
 */

export {};
