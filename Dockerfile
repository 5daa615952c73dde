# One image for worker, sweep, beat and Flower; the command says which. It holds no secret.
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY webhooks webhooks
RUN python -m venv /opt/webhooks \
 && /opt/webhooks/bin/pip install --no-cache-dir --constraint constraints.txt '.[all]'

FROM python:3.13-slim
RUN useradd --system --create-home --home-dir /srv/webhooks webhooks \
 && install --directory --owner webhooks /srv/webhooks/flower
COPY --from=build /opt/webhooks /opt/webhooks
COPY celeryconfig.py /srv/webhooks/
ENV PATH=/opt/webhooks/bin:$PATH PYTHONUNBUFFERED=1 WEBHOOKS_CELERY_CONFIG=celeryconfig
WORKDIR /srv/webhooks
USER webhooks
CMD ["celery", "-A", "webhooks", "worker", "--loglevel", "INFO"]
