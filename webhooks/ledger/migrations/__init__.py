"""Alembic's scripts: how the tables came to be."""
