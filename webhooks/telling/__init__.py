"""Operators are told what needs a person: noted once in the ledger, and sent to what they chose."""
