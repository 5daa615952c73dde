-- How did an admitted attempt go?
-- KEYS, ARGV[1]: see common.lua
-- ARGV
--   [2] the token that admitted it
--   [3] success, throttled, failure or nothing
--   [4] how long its POST took, or '' where nothing was sent
-- Returns {moved, queue, slot…}: moved is opened, closed or same; for each slot a held delivery may be released now, to
-- the queue slow or quick.
-- @include common
-- @include lane
-- @include window

local epoch, lease_ends, delivery = string.match(ARGV[2], '^(%d+):(%d+):(.*)$')
local effect, took = ARGV[3], tonumber(ARGV[4])

-- Given up, or heard before.
if tonumber(lease_ends) <= now or tonumber(redis.call('ZSCORE', IN_FLIGHT, delivery)) ~= tonumber(lease_ends) then
  return { 'same', 'quick' }
end
redis.call('ZREM', IN_FLIGHT, delivery)
local breaker, pace, since = read_breaker(), read_pace(), oldest()

local function trips(window)
  local attempts = window.successes + window.failures
  return attempts >= rules.min_attempts and window.failures * 100 >= rules.failure_percent * attempts
end

local function open()
  local ends = now + rules.pause_us
  remember(breaker, {
    state = 'paused',
    epoch = next_epoch(breaker),
    pause = rules.pause_us,
    ends = ends,
    probe = false,
    release = false,
  })
  redis.call('DEL', SLOTS)
  return 'opened', {}
end

-- After a pause the backlog is released like a new TCP connection: one at first, one more for each success.
local function close()
  remember(breaker, {
    state = 'working',
    epoch = next_epoch(breaker),
    pause = false,
    ends = false,
    probe = false,
    release = 1,
  })
  redis.call('DEL', WINDOW)
  return 'closed', effect == 'success' and grant(breaker, pace, since, 1) or {}
end

local function hear_probe()
  if effect == 'success' or effect == 'throttled' then
    return close()
  end
  if effect == 'failure' then
    local pause = math.min(2 * breaker.pause, rules.max_pause_us)
    remember(breaker, { state = 'paused', pause = pause, ends = now + pause, probe = false })
  else
    remember(breaker, { probe = false })
  end
  return 'same', {}
end

-- A failure halves the release window and grants nothing, so that the release rests until the sweep's next offer.
local function release()
  if effect == 'nothing' then
    return {}
  end
  if effect == 'success' then
    remember(breaker, { release = math.min(breaker.release + 1, rules.lane) })
    return grant(breaker, pace, since, 2)
  end
  remember(breaker, { release = math.max(math.floor(breaker.release / 2), 1) })
  return {}
end

local function hear()
  if effect == 'failure' and trips(count(0, 1)) then
    return open()
  end
  if effect == 'success' or effect == 'throttled' then
    count(1, 0)
  end
  return 'same', breaker.release and release() or {}
end

local function move()
  if epoch ~= breaker.epoch then
    return 'same', {} -- the breaker has opened, closed or been reset since
  end
  if breaker.state == 'working' then
    return hear()
  end
  if breaker.probe == lease_ends then
    return hear_probe()
  end
  return 'same', {}
end

if took and effect ~= 'nothing' then
  learn(pace, effect, took)
end
local moved, slots = move()
keep_pace(pace)
return { moved, queue(pace, since), unpack(slots) }
