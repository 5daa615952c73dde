"""Ids of merchants and endpoints as operators type them."""

from __future__ import annotations

from typing import Any

import click

from webhooks.accepting import reading


class MerchantId(click.ParamType[str]):
    """The id of a merchant, as an event may carry it; raises InvalidEvent for what only looks like one."""

    name = "merchant"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Check it."""
        return reading.checked_name("merchant_id", value)


class EndpointId(MerchantId):
    """The id of an endpoint; that of a merchant names its default one."""

    name = "endpoint"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        if isinstance(value, str) and reading.is_of_an_endpoint(value):
            return value
        return super().convert(value, param, ctx)


merchant_argument = click.argument("merchant_id", type=MerchantId())
endpoint_argument = click.argument("endpoint_id", type=EndpointId(), metavar="ENDPOINT")
