// A webhook receiver with Express. To run it: npm install express && WEBHOOK_SECRET=… node express_app.js
const crypto = require("node:crypto");
const express = require("express");

// While one secret replaces another: the old one in WEBHOOK_SECRET, the new one in WEBHOOK_SECRET_NEXT.
const SECRETS = [process.env.WEBHOOK_SECRET, process.env.WEBHOOK_SECRET_NEXT].filter(Boolean);
if (SECRETS.length === 0) {
  console.error("set WEBHOOK_SECRET: without it every webhook would be refused");
  process.exit(1);
}
const TOLERANCE = 300; // seconds
const handled = new Set(); // in production: a table whose key is the id, written in the same transaction as the handler's work

function isGenuine(req) {
  const timestamp = req.get("X-Webhook-Timestamp") ?? "";
  if (!/^[0-9]{1,12}$/.test(timestamp)) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE) return false;
  const given = ["X-Webhook-Signature", "X-Webhook-Signature-Next"].map((name) => req.get(name) ?? "");
  return SECRETS.some((secret) => {
    const expected = crypto.createHmac("sha256", secret).update(`${timestamp}.`).update(req.body).digest();
    return given.some((signature) =>
      /^[0-9a-f]{64}$/.test(signature) && crypto.timingSafeEqual(expected, Buffer.from(signature, "hex")));
  });
}

const app = express();
app.use(express.raw({ type: () => true, limit: "256kb" })); // the raw bytes, as they were signed

app.post("/webhooks", (req, res) => {
  if (!Buffer.isBuffer(req.body) || !isGenuine(req)) return res.sendStatus(401);
  const event = parse(req.body);
  // The header itself is not signed, the body is.
  if (!event?.id || event.id !== req.get("X-Webhook-Id")) return res.sendStatus(400);
  if (!handled.has(event.id)) {
    handle(event); // if it throws, we answer 500 and the webhook comes again
    handled.add(event.id);
  }
  res.sendStatus(200);
});

function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

// Be quick: what takes more than a second or two belongs in a queue of your own.
function handle(event) {
  if (event.type === "payment.status_changed") console.log(`payment ${event.payment_id} is ${event.status}`);
  // Any other type is no error: new ones may be added.
}

const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
