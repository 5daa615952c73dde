"""The dashboard: its pages, its API, and who may use them."""
