// Whether an owner has recorded everything: a round is sent once, and the first activity alone would be a poor update.

export const ENOUGH = "enough"; // in the store: the owner takes part without the activities that are missing

/** Activities without anything to train on, beside others that have some. @param {readonly { label: string, train: number }[]} labels */
export function notRecorded(labels) {
  const missing = labels.filter(({ train }) => train === 0).map(({ label }) => label);
  return missing.length < labels.length ? missing : [];
}

/** @param {readonly string[]} missing */
export const waitingWords = (missing) =>
  `your phone waits until you have recorded ${missing.join(", ")} too; on the page Record you can take part without`;
