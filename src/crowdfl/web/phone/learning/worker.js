// Trains beside the page, which stays responsive. Orders and replies: see jobs.js.
import { Jobs } from "./jobs.js";

const jobs = new Jobs((reply) => postMessage(reply));
addEventListener("message", ({ data }) => jobs.receive(data));
