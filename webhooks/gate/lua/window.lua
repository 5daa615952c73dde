-- The attempts of the last `window_us`, counted in buckets with running totals: one string of fixed length.
--   24 bytes   window_us (8), number of the newest bucket (8), successes (4), failures (4)
--   then a ring of `buckets` times 6 bytes: successes (3), failures (3)
-- An attempt leaves with its bucket, at the latest when it is window_us old and at most one bucket earlier.

local HEADER, HEADER_BYTES = '>I8I8I4I4', 24
local BUCKET, BUCKET_BYTES = '>I3I3', 6

local function place_of(number)
  return HEADER_BYTES + (number % rules.buckets) * BUCKET_BYTES
end

local function read_bucket(number)
  local place = place_of(number)
  return struct.unpack(BUCKET, redis.call('GETRANGE', WINDOW, place, place + BUCKET_BYTES - 1))
end

local function write_bucket(number, successes, failures)
  redis.call('SETRANGE', WINDOW, place_of(number), struct.pack(BUCKET, successes, failures))
end

-- The totals as of now and the newest bucket's number; `leave`, if given, is called with each place that frees.
local function slide(leave)
  local current = math.floor(now / rules.bucket_us)
  local header = redis.call('GETRANGE', WINDOW, 0, HEADER_BYTES - 1)
  if header == '' then
    return nil
  end
  local window_us, newest, successes, failures = struct.unpack(HEADER, header)
  if window_us ~= rules.window_us or math.abs(current - newest) >= rules.buckets then
    return nil
  end
  for number = newest + 1, current do
    local old_successes, old_failures = read_bucket(number)
    successes, failures = successes - old_successes, failures - old_failures
    if leave then
      leave(number)
    end
  end
  return { newest = math.max(newest, current), successes = successes, failures = failures }
end

local function start_window()
  redis.call('SET', WINDOW, string.rep('\0', HEADER_BYTES + rules.buckets * BUCKET_BYTES))
  return { newest = math.floor(now / rules.bucket_us), successes = 0, failures = 0 }
end

-- Counts one attempt and returns the totals.
local function count(success, failure)
  local window = slide(function(number) write_bucket(number, 0, 0) end) or start_window()
  window.successes, window.failures = window.successes + success, window.failures + failure
  local successes, failures = read_bucket(window.newest)
  write_bucket(window.newest, successes + success, failures + failure)
  local header = struct.pack(HEADER, rules.window_us, window.newest, window.successes, window.failures)
  redis.call('SETRANGE', WINDOW, 0, header)
  expire(WINDOW, rules.window_us)
  return window
end
