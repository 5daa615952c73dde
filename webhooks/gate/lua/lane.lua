-- The endpoint's lane: who is in flight, and for whom a place is kept.

local function let_lapse()
  redis.call('ZREMRANGEBYSCORE', IN_FLIGHT, '-inf', digits(now))
  redis.call('ZREMRANGEBYSCORE', SLOTS, '-inf', digits(now))
end

-- Leases the delivery. The end of the lease names it: no two calls are made in the same microsecond.
local function take_lease(delivery)
  local ends = digits(now + rules.lease_us)
  redis.call('ZADD', IN_FLIGHT, ends, delivery)
  expire(IN_FLIGHT, rules.lease_us)
  return ends
end

local function taken()
  return redis.call('ZCARD', IN_FLIGHT) + redis.call('ZCARD', SLOTS)
end

-- Keeps places for released deliveries: as many as the release window has room for, and at most `limit`.
local function grant(release, limit)
  local ends, granted = digits(now + rules.slot_lease_us), {}
  for number = 1, math.min(limit, release - taken()) do
    granted[number] = 'slot:' .. ends .. ':' .. number
  end
  for _, slot in ipairs(granted) do
    redis.call('ZADD', SLOTS, ends, slot)
  end
  expire(SLOTS, rules.slot_lease_us)
  return granted
end
