"""A real worker tells operators, and nothing waits for that."""

from __future__ import annotations

import json

from tests import courier
from tests.merchant import Merchant, Reply, Stall
from tests.system import System
from tests.telling.mailbox import Mailbox
from webhooks import common, watching
from webhooks.ledger.notices import Reached
from webhooks.model import State


def test_the_sweep_goes_on_while_a_receiver_is_silent(system: System) -> None:
    """It is told to all that were chosen, once by two workers; the one that is broken is a line of the log, once.

    The addresses and what they answer stand in no log.
    """
    written = system.folder / "told"
    receiver = system.keep(Merchant(system.ca))
    receiver.answers(Reply.raw(Stall()))
    with Mailbox() as box:
        system.set(
            log="json",
            deadline=60,
            notice_url=receiver.url("/PATHCANARY?token=QCANARY"),
            notice_secret="SECCANARY",
            notice_command=f"tee -a {written}",
            notice_mail="ops@acme.test",
            notice_smtp=f"smtp://localhost:{box.port}",
        )
        system.merchant("gone").answers(410)
        courier.send({"id": "evt-gone", "type": "kyc.status_changed", "merchant_id": "gone"})
        common.noting().settle()
        workers = [system.start(), system.stage.worker("another")]
        receiver.wait_for(1)
        system.merchant("acme")
        courier.accept({"id": "evt-1", "type": "kyc.status_changed", "merchant_id": "acme"})
        system.wait_for_state(State.DELIVERED, "evt-1")  # only the sweep has published it
        assert box.messages == []
        receiver.drop_connections()
        system.wait_until(lambda: any('"mail"' in each.log.read_text() for each in workers), "the round has ended")
    (notice,) = watching.notices().latest(9).items
    assert (notice.reached, notice.told_to) == (Reached.WAITING, ("command", "mail"))
    (message,) = box.messages
    assert message["To"] == "ops@acme.test"
    assert [json.loads(line)["kind"] for line in written.read_text().splitlines()] == ["endpoint_gone"]
    logs = [program.log.read_text() for program in workers]
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    told = [(each["name"], each["recipient"]) for each in lines if each.get("name", "").startswith("notice.")]
    assert sorted(told) == [("notice.recipient_away", "url"), ("notice.sent", "command"), ("notice.sent", "mail")]
    assert "CANARY" not in "".join(logs)
