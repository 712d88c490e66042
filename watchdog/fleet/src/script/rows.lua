-- Rows of hosts, and their sums.

local freed = {}
local some_freed = false

-- Raised when this script has not written the data. Then all rows are counted anew, see run.lua.
local DAMAGED = {}

local function is_number(value)
  return type(value) == 'number' and value == value
end

local function is_count(value)
  return type(value) == 'number' and value >= 0 and value < 4294967296 and value % 1 == 0
end

local function are_counts(values)
  for _, value in pairs(values) do
    if not is_count(value) then
      return false
    end
  end
  return true
end

local function are_texts(values, from)
  for i = from, #values do
    if type(values[i]) ~= 'string' then
      return false
    end
  end
  return true
end

local function is_row(s)
  if type(s) ~= 'table' then
    return false
  end
  for _, text in ipairs({'m', 'b', 'o', 'x'}) do
    if type(s[text]) ~= 'string' then
      return false
    end
  end
  for _, number in ipairs({'g', 's', 'l', 'd', 'q'}) do
    if not is_number(s[number]) then
      return false
    end
  end
  for _, values in ipairs({'h', 'n', 'p', 't', 'w'}) do
    if type(s[values]) ~= 'table' then
      return false
    end
  end
  for _, grant in pairs(s.p) do
    if type(grant) ~= 'table' or not is_number(grant[1]) or not are_texts(grant, 2) then
      return false
    end
  end
  for _, ticket in pairs(s.t) do
    if type(ticket) ~= 'table' or not (is_number(ticket.e) and is_number(ticket.m)) or type(ticket.q) ~= 'table'
      or not are_texts(ticket.q, 1) then
      return false
    end
  end
  return is_number(s.j or 0) and is_number(s.a or 0) and are_counts(s.h) and are_counts(s.n) and are_texts(s.w, 1)
end

local function total(pool)
  local places = tonumber(call('HGET', TOTALS, pool) or 0)
  if not is_count(places) then
    error(DAMAGED)
  end
  return places
end

local function held_key(pool)
  return BASE .. 'held:' .. pool
end

local function count(host, pool, change, own)
  local places = total(pool) + change
  if change < 0 then
    freed[pool], some_freed = true, true
  end
  if places <= 0 then
    call('HDEL', TOTALS, pool)
    call('DEL', held_key(pool))
    return
  end
  call('HSET', TOTALS, pool, string.format('%.0f', places))
  if places == change then
    -- Left over after a loss of data.
    call('DEL', held_key(pool))
  end
  if own > 0 then
    call('ZADD', held_key(pool), own, host)
  else
    call('ZREM', held_key(pool), host)
  end
end

local function state(host)
  local text = call('HGET', STATE, host)
  if not text or host == '' then
    return nil
  end
  local decoded, s = pcall(cjson.decode, text)
  if not decoded or not is_row(s) then
    error(DAMAGED)
  end
  return s
end

-- Slots of a host: those in its row, grants that it has not counted yet, and tickets.
local function tally(s)
  local n = {}
  for pool, places in pairs(s.h) do
    n[pool] = places
  end
  for _, grant in pairs(s.p) do
    for i = 2, #grant do
      n[grant[i]] = (n[grant[i]] or 0) + 1
    end
  end
  for id, ticket in pairs(s.t) do
    if ticket.e <= now or ticket.e > now + 120000 then
      s.t[id] = nil
    else
      for _, pool in ipairs(ticket.q) do
        n[pool] = (n[pool] or 0) + 1
      end
    end
  end
  return n
end

local function save(host, s)
  local n, old = tally(s), s.n
  for pool, places in pairs(n) do
    local change = places - (old[pool] or 0)
    if change ~= 0 then
      count(host, pool, change, places)
    end
  end
  for pool, places in pairs(old) do
    if not n[pool] then
      count(host, pool, -places, 0)
    end
  end
  s.n = n
  call('HSET', STATE, host, cjson.encode(s))
end

local function stop_waiting(s)
  for _, member in ipairs(s.w) do
    call('ZREM', WAITING, member)
    call('HDEL', CALLED, member)
  end
  s.w = {}
end

local function forget(host)
  local s = state(host)
  call('ZREM', EXPIRY, host)
  call('SREM', MISSING, host)
  if s then
    for pool, places in pairs(s.n) do
      count(host, pool, -places, 0)
    end
    stop_waiting(s)
    call('HDEL', STATE, host)
    local index = call('HGET', MACHINES, s.m)
    if index and string.match(index, '^%S+ (.*)$') == host then
      call('HDEL', MACHINES, s.m)
    end
  end
end

