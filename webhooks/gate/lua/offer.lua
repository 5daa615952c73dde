-- What may be done with the endpoint's held deliveries now?
-- KEYS, ARGV[1]: see common.lua
-- Returns one of
--   {'wait'}
--   {'probe', slot}     one of them may probe
--   {'release', slot…}  so many of them may go; from now on deliveries without a slot are held, so that these go first
-- @include common
-- @include lane

local breaker = read_breaker()

local function offer_probe()
  local slot = 'probe:' .. digits(now + rules.slot_lease_us)
  remember({ state = 'probing', probe = slot })
  return { 'probe', slot }
end

let_lapse()
if breaker.state == 'paused' and now < breaker.ends then
  return { 'wait' }
end
if breaker.state ~= 'working' then
  return probe_ends(breaker) and { 'wait' } or offer_probe()
end
local release = breaker.release or rules.lane
remember({ release = release })
local slots = grant(release, rules.lane)
return #slots > 0 and { 'release', unpack(slots) } or { 'wait' }
