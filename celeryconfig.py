"""What this deployment tunes; used where WEBHOOKS_CELERY_CONFIG=celeryconfig.

Any Celery setting by its own name. What deliveries depend on (acknowledging late, JSON, the queues, the broker's
visibility timeout) is set by `webhooks/celery/app.py`, and setting it here is refused at start.
"""

# Places of one worker process; an attempt whose merchant is silent keeps its thread and gives its place away. More than
# WEBHOOKS_LANE, so that no one merchant can take them all. Start more processes for more cores.
worker_concurrency = 40

# One message in hand for each thread: what is taken early cannot be taken by an idle worker.
worker_prefetch_multiplier = 1

# Connections to the broker that one process keeps for publishing.
broker_pool_limit = 20

# An attempt is one line (`delivery.attempted`); %(asctime)s is a moment in UTC, as in 2026-01-31T12:00:00.000Z. With
# WEBHOOKS_LOG=json these count for nothing.
worker_log_format = "%(asctime)s %(levelname)s %(message)s"
worker_task_log_format = "%(asctime)s %(levelname)s %(task_name)s[%(task_id)s] %(message)s"
