-- No delivery of the endpoint is held any more: deliveries without a slot pass again.
-- KEYS, ARGV[1]: see common.lua
-- ARGV
--   [2…] slots that found no delivery
-- Returns nothing
-- @include common

local breaker = read_breaker()
local changes = { release = false }

for number = 2, #ARGV do
  redis.call('ZREM', SLOTS, ARGV[number])
  if ARGV[number] == breaker.probe then
    changes.probe = false
  end
end
remember(breaker, changes)
return {}
