"""WHETHER EVERYTHING GOES ON: asked of every part in bounded time, judged, said in a line."""
