// What opens first: the invitation, from the link and one question to the platform. The rest of the page is fetched behind it.

import { ServiceUnavailable } from "../protocol/errors.js";
import { parseLink } from "../protocol/invitation.js";
import { h } from "../../web/common/dom.js";
import { actionButton, button, explainBy, notice, title } from "../../web/common/parts.js";
import { speakReaders, t } from "../../web/common/text.js";
import { appOf, requireBrowser, wayOut } from "./browser.js";
import { Doorstep, showDoorstep } from "./doorstep.js";
import { linkOf, showInvitation, waitingInvitation } from "./link.js";
import { explain } from "./messages.js";

const root = /** @type {HTMLElement} */ (document.getElementById("view"));

/** The rest of the page. */
async function openPage() {
  try {
    await import("./main.js");
  } catch {
    throw new ServiceUnavailable("page.js was not loaded");
  }
}

/** Out of an app's own browser; the link stays in the address bar, which such apps hand on. @param {string} app @param {string} fragment */
function showWayOut(app, fragment) {
  const [link, place, out] = [linkOf(fragment), h("div"), wayOut(linkOf(fragment), navigator.userAgent)];
  showInvitation();
  const copy = actionButton(t("browser.copy"), place, async () => {
    await navigator.clipboard.writeText(link);
    place.replaceChildren(notice("good", t("browser.copied")));
  }, { kind: out ? "" : "main" });
  root.replaceChildren(title(t("browser.outTitle")), h("p", null, app ? t("browser.inApp", { app }) : t("browser.inSomeApp")),
    h("p", null, t(out ? "browser.outAndroid" : "browser.outMenu")),
    h("div.buttons", null, out && h("a.button.main", { href: out }, t("browser.open")), copy), place,
    h("p", null, button(t("browser.stay"), () => {
      showInvitation(false);
      void enter();
    }, { small: true })));
}

/** The invitation in the link, if it can be read: what is wrong with it, the page says. @param {string} fragment */
function readable(fragment) {
  try {
    return parseLink(fragment, location.origin);
  } catch {
    return null;
  }
}

/** The platform is asked while the sentences are fetched. */
async function enter() {
  const fragment = waitingInvitation();
  const invitation = fragment === null ? null : readable(fragment);
  const step = invitation && new Doorstep(invitation, { speaking, openPage });
  const looking = step?.look();
  await speaking;
  await requireBrowser();
  if (step) showDoorstep(step, root);
  await looking;
  await openPage().catch((wrong) => {
    if (!step) throw wrong; // else who taps Join tries again
  });
}

const speaking = speakReaders((code) => import(`../text/${code}.js`));

async function start() {
  explainBy(explain);
  const [app, fragment] = [appOf(navigator.userAgent), waitingInvitation()];
  if (app === null || fragment === null) return enter();
  await speaking;
  showWayOut(app, fragment);
}

start().catch((wrong) => root.replaceChildren(title(t("browser.cannotStart")), notice("bad", explain(wrong))));
