-- Book a message that a worker has just taken, and take and book more: from each list in its turn, one at a time.
--
-- A message is booked before it leaves its list, so that nothing that goes wrong here loses one.
--
-- KEYS: the book; its index by time; the lists, in their turns
-- ARGV: now, in seconds; how many more at most; the message that was taken
-- Returns the tag of that message, or '' where it could not be read and was not booked; then, for each that was taken
-- beside it, the number of its list, the message, and its tag or ''.

local function book(item)
  local readable, message = pcall(cjson.decode, item)
  local properties = readable and type(message) == 'table' and message.properties
  local way = type(properties) == 'table' and properties.delivery_info
  local tag = way and properties.delivery_tag
  if type(tag) ~= 'string' or type(way) ~= 'table' then
    return ''
  end
  if type(way.exchange) ~= 'string' or type(way.routing_key) ~= 'string' then
    return ''
  end
  local copy = '[' .. item .. ',' .. cjson.encode(way.exchange) .. ',' .. cjson.encode(way.routing_key) .. ']'
  redis.call('ZADD', KEYS[2], ARGV[1], tag)
  redis.call('HSET', KEYS[1], tag, copy)
  return tag
end

local taken = { book(ARGV[3]) }
local left = tonumber(ARGV[2])
local found = true
while found and left > 0 do
  found = false
  for number = 3, #KEYS do
    local item = left > 0 and redis.call('LINDEX', KEYS[number], -1)
    if item then
      taken[#taken + 1] = number - 3
      taken[#taken + 1] = item
      taken[#taken + 1] = book(item)
      redis.call('RPOP', KEYS[number])
      left = left - 1
      found = true
    end
  end
end
return taken
