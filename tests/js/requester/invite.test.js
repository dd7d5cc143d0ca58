// What the lists of people say of each round: nobody is missed who could not have sent.
import assert from "node:assert/strict";
import { test } from "node:test";

import { complianceCsv, invitationsCsv, rosterCsv, roundState } from "#web/requester/invite.js";

const ROUNDS = [{ number: 1, opened: 1000 }, { number: 2, opened: 2000 }];
const person = (/** @type {string} */ who, /** @type {object} */ more = {}) =>
  ({ number: 1, file: null, link: null, replaces: null, who, state: "in", sent: [], taken_back: [], missing: [], drawn: [], consent: "2", joined: 900, agreed: 960, withdrawn: null, replaced_by: null, ...more });
const OLD = person("old", { state: "replaced", replaced_by: "new", sent: [1] });
const NEW = person("new", { number: 7, replaces: "1", missing: [2] });
const PEOPLE = [OLD, NEW, person("gone", { number: 2, state: "withdrawn", withdrawn: 1500, taken_back: [1] }), person("drawn", { number: 3, drawn: [2], missing: [2] })];

test("a round is what the platform says of a person: sent, taken back, missing, or not asked", () => {
  const states = PEOPLE.map((one) => ROUNDS.map(({ number }) => roundState(one, number)));
  assert.deepEqual(states, [["sent", "unasked"], ["unasked", "missing"], ["takenBack", "unasked"], ["unasked", "missing"]]);
});

test("lists are files that programs read, in every language", () => {
  const all = { invitations: PEOPLE, rounds: ROUNDS, folder: "", no_phones: null };
  const [head, first, second, third] = rosterCsv(all).split("\r\n");
  assert.equal(head, "participant,invitation,replaces,replaced_by,state,consent,joined,agreed,withdrawn,round 1,round 2");
  assert.equal(first, "old,1,,new,replaced,2,1970-01-01 00:15,1970-01-01 00:16,,sent,unasked");
  assert.equal(second, "new,7,1,,in,2,1970-01-01 00:15,1970-01-01 00:16,,unasked,missing");
  assert.equal(third, "gone,2,,,withdrawn,2,1970-01-01 00:15,1970-01-01 00:16,1970-01-01 00:25,takenBack,unasked");
  assert.equal(complianceCsv(all).split("\r\n").filter((line) => /,1,[01]$/.test(line)).length, 3);
  assert.match(invitationsCsv(all), /^invitation,replaces,state,participant,sent,link\r\n1,,replaced,old,1,\r\n7,1,in,new,,/);
});
