-- May an attempt of this delivery start now?
-- KEYS, ARGV[1]: see common.lua
-- ARGV
--   [2] delivery id
--   [3] the slot that its message carries, or ''
--   [4] the queue that it came through: slow or quick
-- Returns one of
--   {'admitted', token}  go; the token is epoch:end of lease:delivery id
--   {'probe', token}     go, and the breaker moves by your report
--   {'slow', slot}       not in the quick queue: its place is kept for whoever brings the slot through the slow one
--   {'paused', until}    the breaker is open, until then at least; '' where a probe decides
--   {'lane'}             the lane is full, or older deliveries go first
--   {'rate'}             its endpoint has had its attempts of this moment
--   {'busy'}             this very delivery is in flight
-- @include common
-- @include lane

local delivery, slot = ARGV[2], ARGV[3]
local breaker, pace, since = read_breaker(), read_pace(), oldest()
local elsewhere = ARGV[4] == 'quick' and is_slow(pace, since)

local function go(word)
  local ends = take_lease(delivery)
  if word == 'probe' then
    remember(breaker, { state = 'probing', probe = ends })
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

-- What comes from now on without a slot is held, so that the sweep lets go what waits longest.
local function hold(why)
  if not breaker.release then
    remember(breaker, { release = rules.lane })
  end
  return why
end

-- Returns why there is no place, or nil. A message with a slot takes the place that was kept for it. In a long queue
-- that may have lapsed: then it takes the oldest place kept for others, so that all moves on however late it arrives.
local function find_place()
  local slots = kept()
  if slot ~= '' and slots > 0 then
    if redis.call('ZREM', SLOTS, slot) == 0 then
      redis.call('ZPOPMIN', SLOTS)
    end
    return nil
  end
  if tokens(pace) < 1 then
    return hold('rate')
  end
  if breaker.release and slot == '' or room(breaker, pace, since, slots) < 1 then
    return hold('lane')
  end
  pay(pace, 1)
  return nil
end

if since and redis.call('ZSCORE', IN_FLIGHT, delivery) then
  return { 'busy' }
end
if breaker.state ~= 'working' then
  if not may_probe() then
    return { 'paused', breaker.state == 'paused' and digits(breaker.ends) or '' }
  end
  return elsewhere and { 'slow', offer_probe(breaker) } or go('probe')
end
local full = find_place()
if full then
  return { full }
end
keep_pace(pace)
return elsewhere and { 'slow', unpack(keep(1)) } or go('admitted')
