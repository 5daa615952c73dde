"""`python -m webhooks` is the command `webhooks`."""

from webhooks.cli import main

main(prog_name="webhooks")
