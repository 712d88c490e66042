
-- How many sessions each host may run while the store is lost: the highest number that all hosts can reach at once
-- within the limit, given that those that hold more keep it. At most the limit divided by the hosts.

local function share(pool, limit, hosts)
  local level = math.floor(limit / hosts)
  local held = total(pool)
  if level == 0 or held <= level then
    return level
  end
  local left, others, from, count = limit, hosts, 0, 1
  while true do
    local page = call('ZREVRANGE', held_key(pool), from, from + count - 1, 'WITHSCORES')
    for i = 2, #page, 2 do
      local places = tonumber(page[i])
      if places <= level then
        return level
      end
      left, others, held = left - places, others - 1, held - places
      if left <= 0 or others <= 0 then
        return 0
      end
      level = math.floor(left / others)
    end
    if #page < 2 * count then
      -- Fewer places than the total: the key was evicted.
      return held > 0 and 0 or level
    end
    from, count = from + count, 50
  end
end

-- The pools of users are those that are held; for others the limit is divided by the hosts.
local function state_shares(answer, hosts)
  local user_limit = tonumber(ARGV[15])
  local function state_share(pool, limit)
    answer[#answer + 1] = pool
    answer[#answer + 1] = share(pool, limit, hosts)
  end
  for i = 16, #ARGV, 2 do
    state_share(ARGV[i], tonumber(ARGV[i + 1]))
  end
  if user_limit >= hosts then
    for _, pool in ipairs(call('HKEYS', TOTALS)) do
      if string.sub(pool, 1, 5) == 'user:' and total(pool) > math.floor(user_limit / hosts) then
        state_share(pool, user_limit)
      end
    end
  end
end
