// Questions as the page edits them and as a task's form has them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { parsed, written } from "#web/requester/editors.js";

test("what is edited is what the form's text says, and back", () => {
  const text = "pain | Does it hurt? | no, a little, much | feature\nwalk | How did you go? | bus, foot | label";
  assert.equal(written(parsed(text)), text);
  assert.deepEqual(parsed("a | b | c, d")[0], { name: "a", text: "b", choices: ["c", "d"], use: "feature" });
});

test("a name is made where none was typed, and what would break a line is not in it", () => {
  const asked = (/** @type {object} */ more) => ({ name: "", text: "Does it | hurt?", choices: ["no", "a\nlot"], use: "feature", ...more });
  assert.equal(written([asked({}), asked({ name: "2. Wie weh?" })]), "question_1 | Does it   hurt? | no, a lot | feature\nwie_weh | Does it   hurt? | no, a lot | feature");
  assert.equal(written([{ name: "x", text: " ", choices: [], use: "label" }]), "");
});
