"""A webhook receiver with Flask. To run it: WEBHOOK_SECRET=… python flask_app.py."""

import hashlib
import hmac
import os
import threading
import time

from flask import Flask, abort, request

# While one secret replaces another: the old one in WEBHOOK_SECRET, the new one in WEBHOOK_SECRET_NEXT.
SECRETS = [os.environ[name] for name in ("WEBHOOK_SECRET", "WEBHOOK_SECRET_NEXT") if os.environ.get(name)]
if not SECRETS:
    raise SystemExit("set WEBHOOK_SECRET: without it every webhook would be refused")
TOLERANCE = 300  # seconds

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 256 * 1024
handled = set()  # in production: a table whose key is the id, written in the same transaction as the handler's work
lock = threading.Lock()


def is_genuine(body):
    timestamp = request.headers.get("X-Webhook-Timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    given = [request.headers.get(name, "") for name in ("X-Webhook-Signature", "X-Webhook-Signature-Next")]
    genuine = False
    for secret in SECRETS:
        expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        for signature in given:
            genuine |= hmac.compare_digest(expected.encode(), signature.encode())  # constant time
    return genuine


@app.post("/webhooks")
def receive():
    if not is_genuine(request.get_data()):  # the raw bytes, as they were signed: not JSON parsed and written again
        abort(401)
    event = request.get_json(force=True)
    if not isinstance(event, dict) or event.get("id") != request.headers.get("X-Webhook-Id"):
        abort(400)  # the header itself is not signed, the body is
    with lock:
        if event["id"] not in handled:
            handle(event)  # if it raises, we answer 500 and the webhook comes again
            handled.add(event["id"])
    return "", 200


def handle(event):
    """Be quick: what takes more than a second or two belongs in a queue of your own."""
    if event.get("type") == "payment.status_changed":
        print(f"payment {event.get('payment_id')} is {event.get('status')}", flush=True)
    # Any other type is no error: new ones may be added.


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "8000")))
