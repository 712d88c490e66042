-- The queue of hosts.

local rooms, known_limits = {}, {}

local function room(pool)
  if rooms[pool] == nil then
    local limit = known_limits[pool] or tonumber(call('HGET', LIMITS, pool) or 0) or 0
    rooms[pool] = limit - total(pool)
  end
  return rooms[pool]
end

-- Simulates serving waiting hosts in order, up to a member with this score. Returns how many of them are served
-- before it, and the names of those that were not yet notified. Stops when `done` says so.
local function serve_waiting(member, score, done)
  local served, names, from, seen = 0, {}, 0, {}
  while from < MOST_WAITING do
    local page = call('ZRANGE', WAITING, from, from + 49, 'WITHSCORES')
    local gone = 0
    for i = 1, #page, 2 do
      local other, order = page[i], tonumber(page[i + 1])
      if done() or order > score or (order == score and member and other >= member) then
        return served, names
      end
      local host, pools, fits = nil, {}, other ~= member
      for part in string.gmatch(other, '[^\n]+') do
        if not host then
          host = part
        else
          pools[#pools + 1] = part
          fits = fits and room(part) > 0
        end
      end
      if fits then
        local called = tonumber(call('HGET', CALLED, other) or -1) or -1
        if called >= 0 and (now - called > GRACE or called > now) then
          call('ZREM', WAITING, other)
          call('HDEL', CALLED, other)
          gone = gone + 1
        else
          if called < 0 then
            call('HSET', CALLED, other, string.format('%.0f', now))
            if not seen[host] and #names < MOST_CALLED then
              seen[host] = true
              names[#names + 1] = host
            end
          end
          for _, pool in ipairs(pools) do
            rooms[pool] = rooms[pool] - 1
          end
          served = served + 1
        end
      end
    end
    if #page < 100 then
      break
    end
    from = from + 50 - gone
  end
  return served, names
end

local function publish(names)
  if #names > 0 then
    call('PUBLISH', BASE .. 'calls', table.concat(names, ' '))
  end
end

local function announce()
  if not some_freed or pause > now then
    return
  end
  rooms = {}
  local _, names = serve_waiting(nil, math.huge, function()
    for pool in pairs(freed) do
      if room(pool) > 0 then
        return false
      end
    end
    return true
  end)
  publish(names)
end

local function holders(pool)
  return call('ZREVRANGE', held_key(pool), 0, 7, 'WITHSCORES')
end

local function pairs_of_arguments(from)
  local pools = {}
  for i = from, #ARGV, 2 do
    pools[#pools + 1] = ARGV[i]
    known_limits[ARGV[i]] = tonumber(ARGV[i + 1])
  end
  return pools
end

-- The pool without a free slot, if the requesting host releases these slots.
local function full_pool(pools, returned)
  for _, pool in ipairs(pools) do
    if room(pool) + (returned[pool] or 0) <= 0 then
      return pool
    end
  end
  return nil
end

