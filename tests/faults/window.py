"""What the drill adds to its workers: `inspect window` tells what a consumer was given and has not acknowledged.

The workers import it as their WEBHOOKS_CELERY_CONFIG, so whatever is no setting begins with an underscore.
"""

import celery.worker.control as _control


@_control.inspect_command(name="window")
def _window(state):  # type: ignore[no-untyped-def]
    """Tell what lies in the window, how large it is, and whether the consumer takes more."""
    consumer = state.consumer.task_consumer
    if consumer is None:
        return {"consuming": False}
    qos = consumer.channel.qos
    acknowledged = set(qos._dirty)
    holds = [message.headers.get("id") for tag, message in list(qos._delivered.items()) if tag not in acknowledged]
    return {
        "consuming": bool(consumer.queues),
        "takes more": qos.can_consume(),
        "size": qos.prefetch_count,
        "holds": holds,
    }
