-- The one clock that all workers share: the server's, in microseconds. It stands still while a script runs.
local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
