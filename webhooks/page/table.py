"""All operations: what can be asked, then what can be done."""

from __future__ import annotations

from webhooks.page.acts import ACTS
from webhooks.page.operations import Operation
from webhooks.page.reads import READS

OPERATIONS: tuple[Operation, ...] = (*READS, *ACTS)
BY_NAME: dict[str, Operation] = {each.name: each for each in OPERATIONS}
