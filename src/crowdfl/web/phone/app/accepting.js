// Whether a link that was opened takes the place of an invitation that this phone has. Any website can open this page with a link.

import { Conflict } from "../protocol/errors.js";

/** @typedef {import("../agent/store.js").Store} Store */
/** @typedef {import("../protocol/invitation.js").Invitation} Invitation */

/**
 * Keep an invitation. One that was used stays for ever. One that its owner has read, and that is still good, stays until the owner
 * deletes it: its keys may be on their way to KGC, and nothing in a link proves who made it.
 * @param {Store} store
 * @param {Invitation} invitation
 * @param {number} now Seconds since 1970.
 * @returns {Promise<boolean>} Whether another one was replaced.
 */
export async function keepInvitation(store, invitation, now) {
  const { task } = invitation;
  const known = /** @type {Invitation | undefined} */ (await store.get(task, "invitation"));
  const isAnother = known !== undefined && known.invitation !== invitation.invitation && !(await store.has(task, "certificate"));
  if (isAnother && known.expires !== null && known.expires > now && (await store.has(task, "definition"))) {
    throw new Conflict("this phone has another invitation to this campaign, which is still good: delete that one first");
  }
  if (isAnother) await store.forget(task);
  await store.open(task, invitation);
  return isAnother;
}
