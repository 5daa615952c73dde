-- What every operation starts from.
-- KEYS
--   [1] state      hash    state, epoch, pause, ends, probe, release; absent while there is nothing to remember
--   [2] in_flight  zset    delivery id → when its lease ends
--   [3] slots      zset    slot → when it lapses; a place in the lane for a delivery on its way
--   [4] window     string  see window.lua
--   [5] pace       string  see pace.lua
-- ARGV
--   [1] the rules as JSON
-- Times are microseconds of the server's clock. What ends at t is over when the clock says t.
-- @include clock

local STATE, IN_FLIGHT, SLOTS, WINDOW, PACE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local rules = cjson.decode(ARGV[1])
local now = now_us()

-- A microsecond stamp has 16 digits, and Lua's tostring keeps 14.
local function digits(number)
  return string.format('%.0f', number)
end

local function in_ms(us)
  return digits(math.ceil(us / 1000))
end

local function expire(key, after_us)
  redis.call('PEXPIRE', key, in_ms(after_us))
end

-- The breaker as it stands. `release` is the release window, there only while the backlog is drained. `probe` is
-- `probe:<lapses>` when it was offered and <lease ends> when it runs; neither outlives the time it names.
local function read_breaker()
  local field = redis.call('HMGET', STATE, 'state', 'epoch', 'pause', 'ends', 'probe', 'release')
  return {
    state = field[1] or 'working',
    epoch = field[2] or '0',
    pause = tonumber(field[3]),
    ends = tonumber(field[4]),
    probe = field[5],
    release = tonumber(field[6]),
  }
end

local function as_text(value)
  return type(value) == 'number' and digits(value) or value or nil
end

-- Writes what changes, and keeps it in `breaker`; false takes a field away.
local function remember(breaker, changes)
  local written, removed = {}, {}
  for field, value in pairs(changes) do
    local text = as_text(value)
    if text ~= as_text(breaker[field]) then
      local list = text and written or removed
      list[#list + 1] = field
      written[#written + 1] = text
    end
    breaker[field] = value
  end
  if #written > 0 then
    redis.call('HSET', STATE, unpack(written))
  end
  if #removed > 0 then
    redis.call('HDEL', STATE, unpack(removed))
  end
  expire(STATE, rules.remember_us)
end

-- An epoch is named by when it began, so that a name does not come back after the keys were lost.
local function next_epoch(breaker)
  return math.max(now, tonumber(breaker.epoch) + 1)
end

local function is_offer(probe)
  return string.sub(probe, 1, 6) == 'probe:'
end

-- When the probe's time is over, or nil when nobody probes.
local function probe_ends(breaker)
  local ends = breaker.probe and tonumber(string.match(breaker.probe, '%d+'))
  return ends and ends > now and ends or nil
end

-- Whoever brings the slot to the right queue first may probe.
local function offer_probe(breaker)
  local slot = 'probe:' .. digits(now + rules.slot_lease_us)
  remember(breaker, { state = 'probing', probe = slot })
  return slot
end
