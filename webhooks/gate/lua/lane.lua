-- The endpoint's lane: who is in flight, and for whom a place is kept.
-- @include pace

local function first_end()
  return tonumber(redis.call('ZRANGE', IN_FLIGHT, 0, 0, 'WITHSCORES')[2])
end

-- Since when the oldest attempt is unanswered, or nil; leases that have lapsed are gone then.
local function oldest()
  local ends = first_end()
  if ends and ends <= now then
    redis.call('ZREMRANGEBYSCORE', IN_FLIGHT, '-inf', digits(now))
    ends = first_end()
  end
  return ends and ends - rules.lease_us
end

-- How many places are kept; slots that have lapsed are gone then.
local function kept()
  local slots = redis.call('ZCARD', SLOTS)
  return slots == 0 and 0 or slots - redis.call('ZREMRANGEBYSCORE', SLOTS, '-inf', digits(now))
end

-- Leases the delivery. The end of the lease names it: no two calls are made in the same microsecond.
local function take_lease(delivery)
  local ends = digits(now + rules.lease_us)
  redis.call('ZADD', IN_FLIGHT, ends, delivery)
  expire(IN_FLIGHT, rules.lease_us)
  return ends
end

local function room(breaker, pace, since, slots)
  local places = math.min(rules.lane, width(pace, since), breaker.release or rules.lane)
  return places - slots - (since and redis.call('ZCARD', IN_FLIGHT) or 0)
end

-- Keeps so many places for deliveries on their way.
local function keep(number)
  local ends, slots, added = digits(now + rules.slot_lease_us), {}, {}
  for nth = 1, number do
    slots[nth] = 'slot:' .. ends .. ':' .. nth
    added[2 * nth - 1], added[2 * nth] = ends, slots[nth]
  end
  redis.call('ZADD', SLOTS, unpack(added))
  expire(SLOTS, rules.slot_lease_us)
  return slots
end

-- Keeps places for released deliveries: as many as there are room and tokens for, and at most `limit`.
local function grant(breaker, pace, since, limit)
  local number = math.min(limit, room(breaker, pace, since, kept()), tokens(pace))
  if number < 1 then
    return {}
  end
  pay(pace, number)
  return keep(number)
end
