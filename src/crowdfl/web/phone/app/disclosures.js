// Who learns what in a campaign of this page: tools/disclosures.py writes it.

export const LEARNT = [
  "Participant: the average of every round but the last, its own rewards, which pseudonyms were in a round, which were left out and why. With weighting samples the total of samples, and so the number of whoever comes or goes; with pay samples the last total too. With pay equal everyone's reward follows from who was in.",
  "Requester: every average, which pseudonyms were in a round, what all together claimed once claims have ended (if one alone claims, or all but one, that one's reward). With weighting samples every total, and so the number of whoever comes or goes. With pay equal everyone's reward follows from who was in.",
  "The platform: who uploaded when (a pseudonym, from an address), who was left out; rewards, round by round, once they are claimed, which with pay samples show numbers of samples (if all but one claim, that one's too). With pay equal everyone's reward follows from who was in.",
  "The second server: who is enrolled, who was in a round, and so every reward of pay equal; other rewards once they are claimed, with pay samples the claimants' numbers of samples and the total (if all but one claim, that one's too). With pay distance next to nothing about divisors, 1% over a task.",
  "The platform or the second server with readers: what those readers read.",
  "A reader, after the second server was set back outside crowdfl restore: nothing more: the platform and phones keep the second server's records, and the task ends.",
  "The key centre with one server: every average, with the platform, while enrolment is open: what the key centre keeps for people who join holds the readers' key.",
  "The key centre: everything, while it deals.",
  "Whoever knows a task's id: its definition and initial weights, how many enrolled, how many uploaded in each round.",
  "Anyone on the wire: sizes and times.",
  "Push service: of a phone whose owner wants reminders: that it uses this platform, and when it is reminded; the platform learns an address by which it knows the same browser in other tasks.",
  "Payer: where each pseudonym wants to be paid, and how much.",
  "All participants but one: what the last one contributed.",
  "The platform and the second server together: everything.",
];
