-- How did an admitted attempt go?
-- KEYS, ARGV[1]: see common.lua
-- ARGV
--   [2] the token that admitted it
--   [3] success, throttled, failure or nothing
-- Returns {moved, slot…}: moved is opened, closed or same; for each slot a held delivery may be released now.
-- @include common
-- @include lane
-- @include window

local epoch, lease_ends, delivery = string.match(ARGV[2], '^(%d+):(%d+):(.*)$')
local effect = ARGV[3]
local breaker = read_breaker()

local function trips(window)
  local attempts = window.successes + window.failures
  return attempts >= rules.min_attempts and window.failures * 100 >= rules.failure_percent * attempts
end

local function pause_for(pause)
  remember({ state = 'paused', pause = pause, ends = now + pause, probe = false })
end

local function open()
  pause_for(rules.pause_us)
  remember({ epoch = next_epoch(breaker), release = false })
  redis.call('DEL', SLOTS)
  return { 'opened' }
end

-- After a pause the backlog is released like a new TCP connection: one at first, one more for each success.
local function close()
  remember({ state = 'working', epoch = next_epoch(breaker), pause = false, ends = false, probe = false, release = 1 })
  redis.call('DEL', WINDOW)
  return { 'closed', unpack(effect == 'success' and grant(1, 1) or {}) }
end

local function hear_probe()
  if effect == 'success' or effect == 'throttled' then
    return close()
  end
  if effect == 'failure' then
    pause_for(math.min(2 * breaker.pause, rules.max_pause_us))
  else
    remember({ probe = false })
  end
  return { 'same' }
end

-- A failure halves the release window and grants nothing, so that the release rests until the sweep's next offer.
local function pace()
  if effect == 'nothing' then
    return {}
  end
  if effect == 'success' then
    local release = math.min(breaker.release + 1, rules.lane)
    remember({ release = release })
    return grant(release, 2)
  end
  remember({ release = math.max(math.floor(breaker.release / 2), 1) })
  return {}
end

local function hear()
  if effect == 'failure' and trips(count(0, 1)) then
    return open()
  end
  if effect == 'success' or effect == 'throttled' then
    count(1, 0)
  end
  return { 'same', unpack(breaker.release and pace() or {}) }
end

let_lapse()
if tonumber(redis.call('ZSCORE', IN_FLIGHT, delivery)) ~= tonumber(lease_ends) then
  return { 'same' } -- given up, or heard before
end
redis.call('ZREM', IN_FLIGHT, delivery)
if epoch ~= breaker.epoch then
  return { 'same' } -- the breaker has opened, closed or been reset since
end
if breaker.state == 'working' then
  return hear()
end
return breaker.probe == lease_ends and hear_probe() or { 'same' }
