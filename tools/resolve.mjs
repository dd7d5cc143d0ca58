// Lets node import the pages' modules where they lie: `node --import ./tools/resolve.mjs FILE`.
//
// Served, join/app/x.js finds ../../web/common/dom.js. On disk the same words lead to src/crowdfl/web/web/common/dom.js,
// which does not exist: one `web` too many.
import { register } from "node:module";

const DOUBLED = "/src/crowdfl/web/web/";
const hook = `
export async function resolve(specifier, context, next) {
  if (!specifier.startsWith(".") || !context.parentURL) return next(specifier, context);
  const url = new URL(specifier, context.parentURL).href;
  return next(url.replace(${JSON.stringify(DOUBLED)}, ${JSON.stringify(DOUBLED.replace("web/web", "web"))}), context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
