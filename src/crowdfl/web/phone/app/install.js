// Installing the page, where the browser offers it.

/** @typedef {Event & { prompt(): Promise<unknown> }} InstallEvent */

/** @type {InstallEvent | null} */
let offered = null;

addEventListener("beforeinstallprompt", (event) => {
  event.preventDefault(); // asked when the person wants to, not in between
  offered = /** @type {InstallEvent} */ (event);
});
addEventListener("appinstalled", () => (offered = null));

export const canInstall = () => offered !== null;
export const isInstalled = () => matchMedia("(display-mode: standalone)").matches;

export async function install() {
  const event = offered;
  offered = null;
  await event?.prompt();
}
