// @ts-check
// Who learns what in a campaign of this page: tools/disclosures.py writes it.

export const LEARNT = [
  ["The key centre", "everything, while it deals"],
  ["whoever knows a task's id", "its definition and initial weights, how many enrolled, how many uploaded in each round"],
  ["anyone on the wire", "sizes and times"],
  ["all participants but one", "what the last one contributed"],
  ["The platform and the second server together", "everything"],
  ["participant", "the average of every round but the last, the total of samples, its own rewards, which pseudonyms were in a round, which were left out and why"],
  ["requester", "every average, every total"],
  ["The platform", "who uploaded when, who was left out; rewards, round by round, once they are claimed, which under the rule `gate` show numbers of samples"],
  ["The second server", "who is enrolled, who was in a round; claimed rewards, as SP"],
  ["SP or CSP with readers", "what those readers read"],
];

export const WEAK = [
  ["The second server", "whether a guess at one person's upload is right, and so small models by search"],
  ["The second server", "averages and totals of models of a few weights, by search"],
  ["SP with a reader", "one person's upload: it publishes no change, and leaves that person out of the next round"],
  ["CSP with a reader", "nearly that: it holds the model still, and says that one seal does not open"],
  ["participant", "the update of whoever misses a round: it takes the last sum back, and the model stands still"],
  ["participant", "more than half of the budget of `gate`, by declaring `max_samples`"],
  ["requester", "the update of whoever misses a round: a tiny `server_rate` holds the model still"],
  ["participant or requester", "the number of samples of whoever comes or goes, from two totals and two lists of names"],
  ["The platform", "every upload, with KGC's disk: while SP does not acknowledge what it was dealt, KGC keeps the source"],
  ["KGC with one server", "every average, with SP, while enrolment is open"],
  ["The platform", "one comparison of the total a round"],
  ["SP or CSP with a paid participant", "two bits for each person and round, not one"],
  ["The second server", "its bit without a signed record of it: it falls silent before it answers"],
  ["Flower's server", "the loss of any model of its choice on one client's data, as often as it asks"],
  ["requester", "earnings back that nobody could claim: it cancels while a round hangs, and the time to claim runs out"],
  ["requester", "rounds that were paid back: after SP was restored, a task whose money was returned runs on and pays"],
];
