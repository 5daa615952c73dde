"""WHAT WE WILL STILL KNOW TOMORROW: merchants, deliveries and attempts, in PostgreSQL."""
