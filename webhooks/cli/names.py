"""Merchants' ids as operators type them."""

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


merchant_argument = click.argument("merchant_id", type=MerchantId())
