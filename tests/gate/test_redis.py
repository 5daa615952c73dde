"""The gate and its Redis: lost scripts, lost data, stamps of sixteen digits, one round trip a call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from redis.connection import AbstractConnection
from redis.exceptions import NoScriptError

from tests.gate.clock import Clock
from tests.gate.script import MERCHANT, QUICK, admitted, attempts, offered_probe, released, widen
from webhooks.gate.gate import Gate
from webhooks.gate.keys import keys_of
from webhooks.gate.scripts import compose
from webhooks.gate.translate import rules_as_json
from webhooks.gate.values import Admitted, Breaker, MayProbe, Report, Wait
from webhooks.policy.breaker import BreakerRules, BreakerState, Effect

_RULES = BreakerRules()


def test_scripts_that_the_server_forgot_are_loaded_again(client: redis.Redis, gate: Gate, clock: Clock) -> None:
    """With the cache flushed before every single call, a breaker opens, probes and closes as ever."""

    def flushed() -> Gate:
        client.script_flush()
        return gate

    for number in range(5):
        one = admitted(flushed())
        assert flushed().report(MERCHANT, one, Effect.FAILURE).opened is (number == 4)
    clock.advance(_RULES.pause)
    probe = admitted(flushed(), slot=offered_probe(flushed()))
    assert flushed().show(MERCHANT).state is BreakerState.PROBING
    report = flushed().report(MERCHANT, probe, Effect.SUCCESS)
    flushed().drained(MERCHANT, report.slots)
    flushed().reset(MERCHANT)

    assert flushed().show(MERCHANT) == Breaker(MERCHANT, since=clock.now + timedelta(microseconds=1))


def test_an_offer_to_many_loads_its_script_once_and_applies_it_once(client: redis.Redis, gate: Gate) -> None:
    """Every merchant gets what it would have got; a second call finds the places taken."""
    client.script_flush()
    merchants = [f"merchant-{number}" for number in range(100)]

    offers = gate.offer(merchants)

    assert {len(getattr(offer, "slots", ())) for offer in offers.values()} == {_RULES.narrow}
    assert gate.offer(merchants) == dict.fromkeys(merchants, Wait())
    assert gate.offer([]) == {}


def test_a_cache_lost_in_the_middle_of_an_offer_repeats_only_what_did_not_run(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipeline some commands have run by then; their slots are the ones they were given."""
    pipeline = gate._pipeline

    def interrupted(operation: str, calls: list[tuple[Any, ...]], *, load: bool = False) -> Any:
        if load:
            return pipeline(operation, calls, load=True)
        first, *rest = pipeline(operation, [calls[0], *calls[2:]])
        return [first, NoScriptError(), *rest]

    monkeypatch.setattr(gate, "_pipeline", interrupted)
    offers = gate.offer(["one", "two", "three"])

    assert [len(getattr(offer, "slots", ())) for offer in offers.values()] == [_RULES.narrow] * 3


def test_an_emptied_redis_is_a_fresh_start(client: redis.Redis, gate: Gate, clock: Clock) -> None:
    """Nothing fails; what was admitted before counts nowhere, and the probe is nobody's any more."""
    old = admitted(gate, "old")
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_RULES.pause)
    probe = admitted(gate, "probe")
    now_us = clock.now_us
    client.flushall()
    clock.set(now_us)

    assert gate.report(MERCHANT, old, Effect.FAILURE) == gate.report(MERCHANT, probe, Effect.FAILURE) == Report()
    assert gate.show(MERCHANT) == Breaker(MERCHANT)
    assert not admitted(gate, "old").probe


def test_a_thousand_stamps_are_exact_and_no_two_alike(client: redis.Redis, redis_url: str) -> None:
    """Leases taken as fast as the server can: each token is the lease's end to the microsecond, and its own."""
    gate = Gate(redis_url, BreakerRules(lane=1000, narrow=1000))
    admitted(gate, "first")
    script, names = compose()["admit"], keys_of(MERCHANT)
    pipeline, rules = client.pipeline(transaction=False), rules_as_json(BreakerRules(lane=1000, narrow=1000))
    for number in range(999):
        pipeline.evalsha(script.sha, len(names), *names, rules, f"delivery-{number}", "", "quick")

    tokens = [token for _, token in pipeline.execute()]

    assert len({token.split(":")[1] for token in tokens}) == len(tokens)
    assert all(client.zscore(names[1], token.split(":")[2]) == int(token.split(":")[1]) for token in tokens)
    assert {gate.report(MERCHANT, Admitted(token), Effect.NOTHING) for token in tokens} == {Report()}
    assert gate.show(MERCHANT).in_flight == 1


def test_tokens_carry_any_delivery_id(gate: Gate) -> None:
    """Colons and 128 characters come back as they went."""
    for delivery in ("a:b:c", ":", "1:2:3", "x" * 128):
        gate.report(MERCHANT, admitted(gate, delivery), Effect.FAILURE)

    assert gate.show(MERCHANT) == Breaker(MERCHANT, failures=4)


def test_the_longest_id_can_probe(gate: Gate, clock: Clock) -> None:
    """The operator sees it in full."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_RULES.pause)
    admitted(gate, "x" * 128)

    assert gate.show(MERCHANT).probe == "x" * 128


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("admit", lambda gate: gate.admit(MERCHANT, "two")),
        ("report", lambda gate: gate.report(MERCHANT, Admitted("0:1:one"), Effect.SUCCESS)),
        ("offer to 200 merchants", lambda gate: gate.offer([f"merchant-{number}" for number in range(200)])),
        ("drained", lambda gate: gate.drained(MERCHANT, ["slot"])),
        ("show", lambda gate: gate.show(MERCHANT)),
    ],
)
def test_a_call_is_one_round_trip(
    name: str, call: Callable[[Gate], Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once connected and with the script known, one request goes out."""
    call(gate)
    sent = []
    send = AbstractConnection.send_packed_command

    def counted(self: AbstractConnection, command: Any, check_health: bool = True) -> None:
        sent.append(command)
        send(self, command, check_health)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    call(gate)

    assert len(sent) == 1, name


def test_a_delivery_costs_few_commands(client: redis.Redis, redis_url: str) -> None:
    """Nineteen within both scripts, where nothing else of its endpoint is in flight; the clock's own among them."""
    gate = Gate(redis_url, _RULES)
    attempts(gate, Effect.SUCCESS, took=QUICK)
    client.config_resetstat()
    attempts(gate, Effect.SUCCESS, took=QUICK)
    calls = {name: told["calls"] for name, told in client.info("commandstats").items()}

    assert calls.pop("cmdstat_evalsha") == 2
    assert sum(calls.values()) - calls["cmdstat_config|resetstat"] <= 19


def test_an_idle_tick_writes_nothing(client: redis.Redis, gate: Gate) -> None:
    """While a merchant is paused the sweep's question changes not a byte."""
    attempts(gate, Effect.FAILURE, 5)
    changes = client.info("persistence")["rdb_changes_since_last_save"]

    for _ in range(10):
        gate.offer([MERCHANT])
        gate.show(MERCHANT)

    assert client.info("persistence")["rdb_changes_since_last_save"] == changes


def test_a_changed_window_setting_starts_a_new_window(redis_url: str) -> None:
    """What was counted in other buckets is forgotten and not misread."""
    attempts(Gate(redis_url, _RULES), Effect.FAILURE, 4)
    wider = Gate(redis_url, BreakerRules(window=timedelta(minutes=10)))

    assert wider.show(MERCHANT).failures == 0
    assert not attempts(wider, Effect.FAILURE)[0].opened


@pytest.mark.parametrize(("window", "buckets"), [(3, 60), (300, 60), (301, 61), (600, 120)])
def test_no_bucket_is_wider_than_five_seconds(window: int, buckets: int) -> None:
    """A window of tests has sixty narrow ones, a longer window more of them."""
    assert BreakerRules(window=timedelta(seconds=window)).buckets == buckets


def test_the_slots_of_an_offer_are_used_up_one_by_one(gate: Gate) -> None:
    """Each lets one delivery pass."""
    widen(gate)
    slots = released(gate)

    assert len(set(slots)) == _RULES.lane
    for slot in slots:
        admitted(gate, slot=slot)
    assert gate.show(MERCHANT).slots == 0


def test_the_offer_of_a_probe_is_made_once(gate: Gate, clock: Clock) -> None:
    """However often it is asked for, also twice in one call."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_RULES.pause)

    assert isinstance(gate.offer([MERCHANT, MERCHANT])[MERCHANT], MayProbe)
    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}


def test_list_names_who_is_not_quiet(gate: Gate) -> None:
    """Paused and draining merchants, by id, whatever letters they are made of."""
    attempts(gate, Effect.FAILURE, 5, merchant="мёртвый {1}")
    released(gate, "draining")
    gate.reset("reset")
    attempts(gate, Effect.SUCCESS, merchant="quiet")

    assert gate.list() == (gate.show("draining"), gate.show("мёртвый {1}"))


def test_a_forked_child_talks_over_a_connection_of_its_own(client: redis.Redis, gate: Gate) -> None:
    """The parent's gate, used before the fork, works in both (D5)."""
    gate.show(MERCHANT)
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=_admit_many, args=(gate, "child"))
    child.start()
    _admit_many(gate, "parent")
    child.join()

    assert child.exitcode == 0
    assert gate.show(MERCHANT).successes == 400


def _admit_many(gate: Gate, who: str) -> None:
    for number in range(200):
        gate.report(MERCHANT, admitted(gate, f"{who}-{number}"), Effect.SUCCESS)
