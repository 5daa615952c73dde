"""Ids of merchants, endpoints and deliveries as operators type them, and as the shell completes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import click
from click.shell_completion import CompletionItem

from webhooks import parts
from webhooks.accepting import reading
from webhooks.errors import WebhooksError
from webhooks.ledger.rows import DeliveryRow
from webhooks.ledger.views import Wanted

_PATIENCE = timedelta(seconds=2)  # of somebody who has pressed the tabulator
_OFFERED = 50


class MerchantId(click.ParamType[str]):
    """The id of a merchant, as an event may carry it; raises InvalidEvent for what only looks like one."""

    name = "merchant"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Check it."""
        return reading.checked_name("merchant_id", value)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer registered ones."""
        return _offer(lambda: sorted({each.merchant_id for each in parts.endpoints().all()}), incomplete)


class EndpointId(MerchantId):
    """The id of an endpoint; that of a merchant names its default one."""

    name = "endpoint"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        if isinstance(value, str) and reading.is_of_an_endpoint(value):
            return value
        return super().convert(value, param, ctx)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer registered ones."""
        return _offer(lambda: [each.id for each in parts.endpoints().all()], incomplete)


class DeliveryId(click.ParamType[str]):
    """The id of a delivery."""

    name = "delivery"

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the newest."""
        return _offer(lambda: [each.id for each in _newest()], incomplete)


class EventId(DeliveryId):
    """The id of an event."""

    name = "event"

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer those of the newest deliveries."""
        return _offer(lambda: dict.fromkeys(each.event_id for each in _newest()), incomplete)


def _newest() -> Sequence[DeliveryRow]:
    return parts.views().deliveries(Wanted(), _OFFERED).items


def _offer(known: Callable[[], Iterable[str]], incomplete: str) -> list[CompletionItem]:
    """Return what begins so; where the ledger cannot be asked there is nothing, and no complaint amid the typing."""
    try:
        with parts.database().within(_PATIENCE):
            found = known()
    except WebhooksError:
        return []
    return [CompletionItem(each) for each in islice((each for each in found if each.startswith(incomplete)), _OFFERED)]


merchant_argument = click.argument("merchant_id", type=MerchantId(), metavar="MERCHANT")
endpoint_argument = click.argument("endpoint_id", type=EndpointId(), metavar="ENDPOINT")
delivery_argument = click.argument("delivery_id", type=DeliveryId(), metavar="ID")
