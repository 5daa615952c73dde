-- May an attempt of this delivery start now?
-- KEYS, ARGV[1]: see common.lua
-- ARGV
--   [2] delivery id
--   [3] the slot that its message carries, or ''
-- Returns one of
--   {'admitted', token}  go; the token is epoch:end of lease:delivery id
--   {'probe', token}     go, and the breaker moves by your report
--   {'paused'}           the breaker is open
--   {'lane'}             the lane is full, or older deliveries go first
--   {'busy'}             this very delivery is in flight
-- @include common
-- @include lane

local delivery, slot = ARGV[2], ARGV[3]
local breaker = read_breaker()

local function go(word)
  local ends = take_lease(delivery)
  if word == 'probe' then
    remember({ state = 'probing', probe = ends })
  end
  return { word, breaker.epoch .. ':' .. ends .. ':' .. delivery }
end

local function may_probe()
  if breaker.state == 'paused' then
    return now >= breaker.ends
  end
  -- In a long queue an offer may lapse before its message arrives; whichever offered message is first then probes.
  return not probe_ends(breaker) or is_offer(breaker.probe) and is_offer(slot)
end

-- A released delivery takes the place that was kept for it. In a long queue that may have lapsed: then it takes the
-- oldest place kept for others, so that the release moves on however late its messages arrive.
local function find_place()
  if slot ~= '' and redis.call('ZREM', SLOTS, slot) == 1 then
    return true
  end
  if breaker.release then
    return slot ~= '' and (#redis.call('ZPOPMIN', SLOTS) > 0 or taken() < breaker.release)
  end
  if taken() < rules.lane then
    return true
  end
  remember({ release = rules.lane })
  return false
end

let_lapse()
if redis.call('ZSCORE', IN_FLIGHT, delivery) then
  return { 'busy' }
end
if breaker.state ~= 'working' then
  return may_probe() and go('probe') or { 'paused' }
end
return find_place() and go('admitted') or { 'lane' }
