// An HTTP processor in plain JavaScript: SIGNING_SECRET=whsec_… node endpoint.mjs (port 8000)
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const KEY = Buffer.from(process.env.SIGNING_SECRET.replace("whsec_", ""), "base64");

function isGenuine(headers, body) {
  const at = headers["webhook-timestamp"];
  const signed = `${headers["webhook-id"]}.${at}.${body}`;
  const right = Buffer.from("v1," + createHmac("sha256", KEY).update(signed).digest("base64"));
  const given = Buffer.from(headers["webhook-signature"] ?? "");
  const isRecent = Math.abs(Date.now() / 1000 - Number(at)) < 300;
  return isRecent && given.length === right.length && timingSafeEqual(given, right);
}

// Replace this.
async function work(run) {
  return { records_processed: run.parameters?.rows ?? 1 };
}

async function workLater(run) {
  const headers = { Authorization: `Bearer ${run.callback.token}`, "Content-Type": "application/json" };
  const body = JSON.stringify(await work(run));
  await fetch(run.callback.complete_url, { method: "POST", headers, body });
}

createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts).toString();
  const reply = (status, value) => response.writeHead(status).end(JSON.stringify(value));
  if (!isGenuine(request.headers, body)) return reply(401, { reason: "wrong signature" });
  const run = JSON.parse(body);
  if (!run.parameters?.is_long) return reply(200, await work(run));
  workLater(run);
  reply(202, {});
}).listen(Number(process.env.PORT ?? 8000), "127.0.0.1", function () {
  console.log(`listening on ${this.address().port}`);
});
