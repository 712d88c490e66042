-- Detects losses of data since the last call.

-- All hosts get one TTL to restate themselves; until then nothing is granted.
local function begin_pause(may_lack_rows)
  pause, strict = now + ttl, may_lack_rows
  call('HSET', META, 'pause', string.format('%.0f', pause), 'strict', strict and '1' or '0')
  call('DEL', MISSING, CALLED)
  for _, host in ipairs(call('ZRANGE', EXPIRY, 0, -1)) do
    if host ~= '' then
      call('ZADD', EXPIRY, string.format('%.0f', now + ttl), host)
      call('SADD', MISSING, host)
    end
  end
end

local function reset()
  for _, pool in ipairs(call('HKEYS', TOTALS)) do
    call('DEL', held_key(pool))
  end
  call('DEL', STATE, TOTALS, EXPIRY, WAITING, CALLED, LIMITS, MACHINES, MISSING)
  call('HSET', STATE, '', '')
  call('HSET', TOTALS, '', '0')
  call('ZADD', EXPIRY, '+inf', '')
end

local function start()
  local complete = call('EXISTS', STATE, TOTALS, EXPIRY) == 3
  if not meta[2] or not complete then
    reset()
  end
  if meta[2] ~= run then
    call('HSET', META, 'run', run)
  end
  local lost = meta[2] ~= run or not complete
  local gap = now - clock
  if claim > fence then
    -- The store was restored from older data. Hosts with still higher fences do not prolong the pause.
    fence = claim
    call('HSET', META, 'fence', string.format('%.0f', fence))
    lost = lost or not (strict and pause > now)
  end
  if lost then
    begin_pause(true)
  elseif gap < -1000 or gap > ttl * 2 / 3 then
    -- The clock was set, or the store hung: rows that look expired are not.
    begin_pause(strict and pause > clock)
  end
  for _, host in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)) do
    forget(host)
  end
end

local function paused()
  if pause <= now then
    return nil
  end
  if not strict and call('SCARD', MISSING) == 0 then
    pause = 0
    call('HSET', META, 'pause', '0')
    return nil
  end
  return pause - now
end

