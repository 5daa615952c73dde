"""WHAT IS MEASURED, for Prometheus: facts counted by a sink, how things stand read now and then, one port a process.

Loaded only where `WEBHOOKS_METRICS_PORT` is set, and by workers alone.
"""
