-- How does the endpoint stand? Changes nothing.
-- KEYS, ARGV[1]: see common.lua
-- Returns {state, since, pause, until, probe, release, successes, failures, in flight, slots, width, pace, queue}:
-- texts, '' for what is not there; `probe` is the id of the delivery that probes right now.
-- @include common
-- @include pace
-- @include window

local breaker, pace = read_breaker(), read_pace()
local window = slide() or { successes = 0, failures = 0 }

local function prober()
  if breaker.state ~= 'probing' or not probe_ends(breaker) or is_offer(breaker.probe) then
    return ''
  end
  return redis.call('ZRANGEBYSCORE', IN_FLIGHT, breaker.probe, breaker.probe)[1] or ''
end

local function living(key)
  return digits(redis.call('ZCOUNT', key, '(' .. digits(now), '+inf'))
end

local function oldest()
  local first = redis.call('ZRANGEBYSCORE', IN_FLIGHT, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[2] and tonumber(first[2]) - rules.lease_us
end

local function text(number)
  return number and digits(number) or ''
end

local since = oldest()
return {
  breaker.state,
  breaker.epoch == '0' and '' or breaker.epoch,
  text(breaker.pause),
  text(breaker.ends),
  prober(),
  text(breaker.release),
  digits(window.successes),
  digits(window.failures),
  living(IN_FLIGHT),
  living(SLOTS),
  digits(width(pace, since)),
  digits(pace.took),
  queue(pace, since),
}
