// What the phone's page needs of a browser, tried in Firefox on the page at the given address.
import { until, withFirefox } from "./firefox.mjs";

const found = await withFirefox(async (page, said) => {
  await page.goto(process.argv[2]);
  await until(page, "window.ready === true");
  const first = /** @type {Record<string, unknown>} */ (await page.evaluate("tried()"));
  await page.reload();
  await until(page, "window.ready === true");
  return { ...first, "keys after a reload": await page.evaluate("keysStillWork()"), said };
});
console.log(JSON.stringify(found));
