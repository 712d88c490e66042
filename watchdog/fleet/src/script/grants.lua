-- Requests, and reservations on other hosts.

local function refuse(pool, ahead, retry)
  local answer = {'refused', fence, pool, known_limits[pool], total(pool), ahead, retry}
  for _, value in ipairs(holders(pool)) do
    answer[#answer + 1] = value
  end
  return answer
end

local function wait(host, s, number, member, score, pools)
  s.q = tonumber(number)
  call('ZADD', WAITING, string.format('%.0f', score), member)
  call('HDEL', CALLED, member)
  for _, pool in ipairs(pools) do
    call('HSET', LIMITS, pool, known_limits[pool])
  end
  for _, known in ipairs(s.w) do
    if known == member then
      call('HSET', STATE, host, cjson.encode(s))
      return
    end
  end
  if #s.w >= MOST_WAITS_OF_HOST then
    local oldest = table.remove(s.w, 1)
    call('ZREM', WAITING, oldest)
    call('HDEL', CALLED, oldest)
  end
  s.w[#s.w + 1] = member
  call('HSET', STATE, host, cjson.encode(s))
end

local function ask()
  local host, boot, machine, generation = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
  local number, priority, waited, id = ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13]
  local pools = pairs_of_arguments(14)
  local s = state(host)
  if not s then
    return {'void', fence}
  end
  if s.m ~= machine or (s.b ~= boot and earlier_boot(s, boot)) then
    return {'duplicate', fence, host}
  end
  if s.b ~= boot or s.g ~= generation or tonumber(number) <= s.s then
    return {'void', fence}
  end
  if s.d > now and s.d <= now + ttl then
    return {'duplicate', fence, s.x}
  end
  if s.p[number] then
    return {'granted', fence, s.p[number][1]}
  end
  local pausing = paused()
  if pausing then
    return {'paused', fence, pausing}
  end
  local member = host .. '\n' .. table.concat(pools, '\n')
  local score = math.max(now - waited, math.min(s.l, now)) - priority * AGING
  local ticket, returned = s.t[id], {}
  if ticket and ticket.e > now then
    for _, pool in ipairs(ticket.q) do
      returned[pool] = 1
    end
  else
    ticket = nil
  end
  local full = full_pool(pools, returned)
  if full then
    wait(host, s, number, member, score, pools)
    local next_expiry = tonumber(call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2])
    local retry = math.max(200, math.min(next_expiry - now + 20, ttl / 3))
    return refuse(full, call('ZCOUNT', WAITING, '-inf', '(' .. string.format('%.0f', score)), retry)
  end
  if not ticket then
    local ahead, names = serve_waiting(member, score, function()
      full = full_pool(pools, returned)
      return full
    end)
    full = full_pool(pools, returned)
    publish(names)
    if full then
      wait(host, s, number, member, score, pools)
      return refuse(full, ahead, GRACE + 100)
    end
  end
  fence = call('HINCRBY', META, 'fence', 1)
  local grant = {fence}
  for _, pool in ipairs(pools) do
    grant[#grant + 1] = pool
  end
  s.p[number], s.t[id], s.l = grant, nil, now
  call('ZREM', WAITING, member)
  call('HDEL', CALLED, member)
  for i, known in ipairs(s.w) do
    if known == member then
      table.remove(s.w, i)
      break
    end
  end
  save(host, s)
  -- The grant must not expire before its host can count it.
  call('ZADD', EXPIRY, 'GT', string.format('%.0f', now + own_ttl), host)
  return {'granted', fence, fence}
end

local function reserve()
  local host, id, lifetime, memory = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  local pools = pairs_of_arguments(10)
  local s = state(host)
  if not s or (s.d > now and s.d <= now + ttl) then
    return {'unreachable', fence}
  end
  local pausing = paused()
  if pausing then
    return {'paused', fence, pausing}
  end
  local left, tickets = s.a, 0
  for known, ticket in pairs(s.t) do
    if known ~= id and ticket.e > now then
      left, tickets = left - ticket.m, tickets + 1
    end
  end
  if left < memory or tickets >= MOST_TICKETS then
    return {'memory', fence, math.max(0, left)}
  end
  -- A reservation that is repeated after a lost answer has its slots.
  local earlier = s.t[id]
  if not (earlier and earlier.e > now) then
    local full = full_pool(pools, {})
    if not full then
      local _, names = serve_waiting(nil, now, function()
        full = full_pool(pools, {})
        return full
      end)
      full = full_pool(pools, {})
      publish(names)
    end
    if full then
      return {'full', fence, full, known_limits[full], total(full)}
    end
  end
  s.t[id] = {e = now + lifetime, m = memory, q = pools}
  fence = call('HINCRBY', META, 'fence', 1)
  save(host, s)
  return {'reserved', fence}
end

