-- The rules of the fleet, in one atomic step: expire, count, compare, write, respond.
--
-- Times are the server's, in milliseconds. Host clocks are never compared: hosts send durations.
-- Everything is derived from rows that hosts restate, so lost data costs a pause, and never exceeds a limit.
--
-- meta      hash: layout, run, clock, ttl, fence, pause, strict
-- state     hash: host -> JSON of a counted row; the field '' marks that the key was not evicted, here and below
-- totals    hash: pool -> slots in use
-- expiry    zset: host -> time at which its row expires
-- rows      hash: host -> published state of the host; kept for an hour after the row has expired
-- seen      zset: host -> its last restatement
-- waiting   zset: host and pools -> order: the start of its wait, a minute earlier for each step of priority
-- called    hash: member of waiting -> when it was notified
-- limits    hash: pool -> limit of the last request
-- machines  hash: machine id -> boot id and host
-- missing   set: hosts whose restatement ends the pause
-- held:POOL zset: host -> slots, to name the hosts with the most
local META, STATE, TOTALS, EXPIRY, ROWS, SEEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local WAITING, CALLED, LIMITS, MACHINES, MISSING = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local BASE = string.sub(META, 1, -5)
local op, LAYOUT, run = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local claim, own_ttl = tonumber(ARGV[4]), tonumber(ARGV[5])

-- A notified host that sends no request within this time loses its turn.
local GRACE = 2000
local AGING = 60000
local KEEP_ROWS = 3600000
-- Maximum number of waiting hosts in one call.
local MOST_WAITING = 1000
local MOST_CALLED = 64
local MOST_WAITS_OF_HOST = 16
local MOST_TICKETS = 64
local MOST_TEXT = 32000
-- The longest TTL of the configuration, and the highest fence that hosts accept.
local MOST_TTL = 600000
local MOST_FENCE = 2 ^ 52

local call = redis.call
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local meta = call('HMGET', META, 'layout', 'run', 'clock', 'ttl', 'fence', 'pause', 'strict')
if (tonumber(meta[1]) or 0) > LAYOUT then
  return {'newer', 0}
end
-- The first write fails when the memory is full, so that a refused call changes nothing.
call('HSET', META, 'layout', LAYOUT, 'clock', string.format('%.0f', now))
-- Another program may have written anything.
local clock, stored_ttl = tonumber(meta[3]) or now, tonumber(meta[4]) or 0
local ttl = math.max(own_ttl, math.min(stored_ttl, MOST_TTL))
local fence = tonumber(meta[5]) or 0
if not (fence >= 0 and fence <= MOST_FENCE) then
  fence = 0
end
local pause, strict = tonumber(meta[6]) or 0, meta[7] == '1'
local longest_pause = math.max(now, clock) + ttl
if not (pause <= longest_pause) then
  pause = longest_pause
  call('HSET', META, 'pause', string.format('%.0f', pause))
end
if ttl ~= stored_ttl then
  call('HSET', META, 'ttl', ttl)
end

