-- Dispatches the call.

-- One text must not make the view too long for all hosts.
local function short(text)
  return #text <= MOST_TEXT and text or '{}'
end

local function view()
  local answer = {'view', fence, paused() or 0}
  for i = 6, #ARGV do
    local host = ARGV[i]
    local s, at = state(host), call('ZSCORE', SEEN, host)
    if at then
      local duplicate = s and s.d > now and s.d <= now + ttl
      answer[#answer + 1] = host
      answer[#answer + 1] = math.max(0, now - tonumber(at))
      answer[#answer + 1] = (duplicate and 2) or (s and 1) or 0
      answer[#answer + 1] = short(call('HGET', ROWS, host) or '')
      answer[#answer + 1] = short(cjson.encode(s and s.n or {}))
    end
  end
  return answer
end

local operations = {restate = restate, ask = ask, reserve = reserve, view = view}

local function run()
  start()
  local answer = operations[op]()
  announce()
  return answer
end

local done, answer = pcall(run)
if not done and answer == DAMAGED then
  -- What was lost is unknown, so all hosts restate themselves.
  reset()
  begin_pause(true)
  rooms, freed, some_freed = {}, {}, false
  return run()
elseif not done then
  error(answer, 0)
end
return answer
