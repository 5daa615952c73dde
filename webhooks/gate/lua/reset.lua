-- Start anew: working, nothing counted. What is in flight keeps its lease, and its outcome counts nowhere.
-- KEYS, ARGV[1]: see common.lua
-- Returns nothing
-- @include common

local breaker = read_breaker()

remember(breaker, {
  state = 'working',
  epoch = next_epoch(breaker),
  pause = false,
  ends = false,
  probe = false,
  release = false,
})
redis.call('DEL', SLOTS, WINDOW)
return {}
