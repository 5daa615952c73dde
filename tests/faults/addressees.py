"""Where the drill's events go: the endpoints of its merchants, what each is given, and what it wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Addressee:
    """An endpoint of the cast; `reasons` are those for which a delivery to it may fail, None for that it need not.

    `types`, `headers`, `lane` and `rate` are as an endpoint's: what it wants, its own headers, its own limits.
    """

    endpoint_id: str
    merchant_id: str
    reasons: frozenset[str | None] = frozenset({None})
    types: tuple[str, ...] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    lane: int | None = None
    rate: float | None = None

    @property
    def secret(self) -> str:
        """What signs for it, and for no other."""
        return f"a secret of the drill, for {self.endpoint_id}"

    def wants(self, type_: str) -> bool:
        """Whether it wants events of a type."""
        if self.types is None:
            return True
        return any(type_ == each or (each.endswith(".*") and type_.startswith(each[:-1])) for each in self.types)


def _reasons(*reasons: str) -> frozenset[str | None]:
    return frozenset({None, *reasons})


LEAVES = "ep_leaving"  # dead until an operator removes it
PROTECTED = "protected"  # has asked to be protected, and gets its events in bulk

ADDRESSEES = {
    each.endpoint_id: each
    for each in (
        Addressee("fast", "fast"),
        Addressee("swift", "swift"),
        Addressee("slow", "slow"),
        Addressee("flaky", "flaky", _reasons("fast_exhausted")),
        Addressee("outage", "outage", _reasons("fast_exhausted")),
        Addressee("strict", "strict", _reasons("rejected", "slow_exhausted")),
        Addressee("double", "double"),
        Addressee(
            "ep_double",
            "double",
            _reasons("fast_exhausted"),
            types=("payment.*",),
            headers={"X-Drill": "of ep_double"},
        ),
        Addressee("leaving", "leaving"),
        Addressee(LEAVES, "leaving", _reasons("fast_exhausted", "cancelled")),
        Addressee(PROTECTED, "protected", lane=3, rate=5),
        # This merchant has no default endpoint, and there are events that neither of these two wants.
        Addressee(
            "ep_slow_side",
            "sided",
            types=("payment.*",),
            headers={"Authorization": "Bearer of ep_slow_side"},
            lane=2,
        ),
        Addressee(
            "ep_flaky_side",
            "sided",
            _reasons("fast_exhausted"),
            types=("payment.status_changed", "refund.completed"),
            headers={"X-Drill": "of ep_flaky_side"},
        ),
    )
}

SICK = frozenset({"outage", "ep_double", LEAVES})  # whose breaker opens
STRANGERS = frozenset({"fast", "swift"})  # healthy ones of merchants that have no sick one
SIBLINGS = frozenset({"double"})  # healthy ones of merchants that have a sick one beside them

OWN_HEADERS = sorted({name for each in ADDRESSEES.values() for name in each.headers})
