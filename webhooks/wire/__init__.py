"""HOW IT TRAVELS: addresses, the request, the answer."""
