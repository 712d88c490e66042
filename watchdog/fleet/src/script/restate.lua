-- The restatement of a host.

local function mark_duplicate(s, other)
  s.d, s.x = now + ttl, other
end

local function earlier_boot(s, boot)
  return string.find(' ' .. s.o .. ' ', ' ' .. boot .. ' ', 1, true) ~= nil
end

-- Rows that have expired, and that the view still lists.
local function unreachable_hosts()
  return math.max(0, call('ZCARD', SEEN) - (call('ZCARD', EXPIRY) - 1))
end

local function restate()
  local host, boot, machine, generation = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
  local settled, waiting, memory = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  local fresh = {m = machine, b = boot, g = generation, s = 0, o = '', h = {}, p = {}, t = {}, n = {}, w = {}, j = now, l = 0, d = 0, x = '', q = 0}
  local s = state(host) or fresh
  if s.m ~= machine or (s.b ~= boot and earlier_boot(s, boot)) then
    -- The row belongs to another machine, or to a later boot while this one is alive: a clone.
    local clone = string.sub(host, 1, 55) .. '@' .. string.sub(boot, 1, 8)
    mark_duplicate(s, clone)
    call('HSET', STATE, host, cjson.encode(s))
    s = state(clone) or fresh
    mark_duplicate(s, host)
    host = clone
  elseif s.b ~= boot then
    -- A reboot ended all sessions.
    stop_waiting(s)
    s.o = string.match(s.o .. ' ' .. s.b, '(%S+ ?%S* ?%S* ?%S*)$')
    s.b, s.g, s.s, s.p, s.t, s.d, s.q = boot, generation, 0, {}, {}, 0, 0
  elseif generation < s.g then
    return {'superseded', fence}
  elseif generation > s.g then
    s.g, s.s, s.p, s.q = generation, 0, {}, 0
  end
  local index = call('HGET', MACHINES, machine)
  if not index or index ~= boot .. ' ' .. host then
    local other_boot, other = string.match(index or '', '^(%S+) (.*)$')
    local o = other and other ~= host and other_boot ~= boot and state(other)
    if o and o.m == machine and o.b == other_boot then
      mark_duplicate(s, other)
      mark_duplicate(o, host)
      call('HSET', STATE, other, cjson.encode(o))
    else
      call('HSET', MACHINES, machine, boot .. ' ' .. host)
    end
  end
  if settled < s.s then
    -- A connection that was cut delivers an old row late. It lacks launches that a later row counted.
    return {'restated', fence, call('ZCARD', EXPIRY) - 1, unreachable_hosts(), paused() or 0, 0}
  end
  s.s = settled
  for number in pairs(s.p) do
    if tonumber(number) <= s.s then
      s.p[number] = nil
    end
  end
  s.h, s.a = cjson.decode(ARGV[14]), memory
  -- A row from before the last request does not include its launch.
  if waiting == 0 and s.s >= s.q then
    stop_waiting(s)
  end
  -- A counted row without an expiry would count for ever, so these come first: one may be another program's key.
  call('HSET', ROWS, host, ARGV[13])
  call('ZADD', SEEN, string.format('%.0f', now), host)
  call('ZADD', EXPIRY, string.format('%.0f', now + own_ttl), host)
  save(host, s)
  call('SREM', MISSING, host)
  for _, old in ipairs(call('ZRANGEBYSCORE', SEEN, '-inf', string.format('%.0f', now - KEEP_ROWS), 'LIMIT', 0, 10)) do
    if call('HEXISTS', STATE, old) == 0 then
      call('ZREM', SEEN, old)
      call('HDEL', ROWS, old)
    end
  end
  if s.d > now and s.d <= now + ttl then
    return {'duplicate', fence, s.x}
  end
  local hosts, pausing = call('ZCARD', EXPIRY) - 1, paused()
  local answer = {'restated', fence, hosts, unreachable_hosts(), pausing or 0, 0}
  -- Until now another host may not have counted this one; and after a loss, rows may lack.
  if not pausing and now - (s.j or 0) >= ttl then
    answer[6] = hosts
    state_shares(answer, hosts)
  end
  return answer
end

