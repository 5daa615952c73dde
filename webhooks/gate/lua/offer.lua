-- What may be done with the endpoint's held deliveries now?
-- KEYS, ARGV[1]: see common.lua
-- Returns one of
--   {'wait'}
--   {'probe', queue, slot}     one of them may probe; its message goes to the queue slow or quick
--   {'release', queue, slot…}  so many of them may go; from now on what has no slot is held, so that these go first
-- @include common
-- @include lane

local breaker, pace, since = read_breaker(), read_pace(), oldest()

if breaker.state == 'paused' and now < breaker.ends then
  return { 'wait' }
end
if breaker.state ~= 'working' then
  return probe_ends(breaker) and { 'wait' } or { 'probe', queue(pace, since), offer_probe(breaker) }
end
remember(breaker, { release = breaker.release or rules.lane })
local slots = grant(breaker, pace, since, rules.lane)
keep_pace(pace)
return #slots > 0 and { 'release', queue(pace, since), unpack(slots) } or { 'wait' }
