-- How the endpoint answers, and how many attempts it gets: four whole numbers in one string, absent while all are 0.
--   width  how many places of its lane it has earned
--   heard  when it last answered, or failed so quickly that nobody waited for it
--   pace   how long its answers take: an average in which the newest has a quarter's weight
--   full   when the tokens of its rate are complete again; 0 without a rate

local function read_pace()
  local width, heard, took, full =
    string.match(redis.call('GET', PACE) or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+)$')
  return { width = tonumber(width), heard = tonumber(heard), took = tonumber(took), full = tonumber(full) }
end

-- Writes it if anything has changed.
local function keep_pace(pace)
  if pace.changed then
    local text = string.format('%.0f %.0f %.0f %.0f', pace.width, pace.heard, pace.took, pace.full)
    redis.call('SET', PACE, text, 'PX', in_ms(rules.remember_us))
  end
end

-- `since` is here and below since when the oldest attempt is unanswered, nil where none is.
local function is_slow(pace, since)
  return pace.took >= rules.slow_after_us or since and now - since >= rules.slow_after_us or false
end

local function queue(pace, since)
  return is_slow(pace, since) and 'slow' or 'quick'
end

-- An endpoint from which others come back while one attempt hangs, or whose answers take long, is not silent.
local function is_silent(pace, since)
  return since and now - math.max(since, pace.heard) >= rules.slow_after_us
end

local function earned(pace)
  return now - pace.heard < rules.remembered_quick_us and pace.width or rules.narrow
end

-- How many places of its lane the endpoint may have now.
local function width(pace, since)
  return is_silent(pace, since) and rules.narrow or earned(pace)
end

-- A quick failure holds up nobody: it is no silence, and neither earns nor costs a place.
local function learn(pace, effect, took)
  pace.took = math.floor((3 * pace.took + took) / 4)
  if effect == 'failure' and took >= rules.slow_after_us then
    pace.width = rules.narrow
  else
    local more = effect == 'failure' and 0 or 1
    pace.width, pace.heard = math.min(earned(pace) + more, rules.lane), now
  end
  pace.changed = true
end

-- How long it takes until the bucket is full. More than the whole of it is another clock's or another rate's.
local function owed(pace)
  local rest = math.max(pace.full - now, 0)
  return rest <= rules.burst_us and rest or 0
end

-- How many attempts its rate allows now; without one, as many as its lane could ever hold.
local function tokens(pace)
  return rules.token_us and math.floor((rules.burst_us - owed(pace)) / rules.token_us) or rules.lane
end

local function pay(pace, number)
  if rules.token_us then
    pace.full, pace.changed = now + owed(pace) + number * rules.token_us, true
  end
end
