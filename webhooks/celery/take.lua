-- Takes messages from several lists in turn, and books each in the same moment: whatever becomes of the answer, none
-- is lost. Where it can't be booked it is handed over all the same, since nobody else has it.
-- KEYS
--   [1] index   zset  delivery tag → when it was taken
--   [2] book    hash  delivery tag → [message, exchange, routing key]
--   [3…]        the lists, in the order in which they are asked; their oldest message is the last
-- ARGV
--   [1] how many in all
--   [2] now, in seconds
--   [3…] how many from each list
-- Returns for each message the number of its list, 1 where it is booked, and the message itself

local INDEX, BOOK, LISTS = KEYS[1], KEYS[2], 2
local left, now = tonumber(ARGV[1]), ARGV[2]
local taken, may = {}, {}

local function entry(message)
  local properties = cjson.decode(message).properties
  local way = properties.delivery_info
  local kept = '[' .. message .. ',' .. cjson.encode(way.exchange) .. ',' .. cjson.encode(way.routing_key) .. ']'
  return properties.delivery_tag, kept
end

local function books(message)
  local readable, tag, kept = pcall(entry, message)
  if not readable or type(tag) ~= 'string' then
    return 0
  end
  local noted = redis.pcall('ZADD', INDEX, now, tag)
  if type(noted) == 'table' and noted.err then
    return 0
  end
  local filed = redis.pcall('HSET', BOOK, tag, kept)
  return type(filed) == 'table' and filed.err and 0 or 1
end

local function take_from(list)
  local message = left > 0 and may[list] > 0 and redis.call('RPOP', KEYS[LISTS + list])
  if not message then
    may[list] = 0
    return false
  end
  left, may[list] = left - 1, may[list] - 1
  for _, value in ipairs({ list, books(message), message }) do
    taken[#taken + 1] = value
  end
  return true
end

for list = 1, #KEYS - LISTS do
  may[list] = tonumber(ARGV[LISTS + list])
end
repeat
  local found = false
  for list = 1, #KEYS - LISTS do
    found = take_from(list) or found
  end
until not found
return taken
