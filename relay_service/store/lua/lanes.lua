-- Queued jobs by route and lane, and whose turn it is. The owner names a route of its site.
--
-- Touches
--   turns              sorted set: owner -> turn, for the routes that have something queued
--   lanes:<owner>      hash: digest -> {owner, kind, audience, reoffer_to or false, blocked} (JSON)
--   lane:<digest>      sorted set: job id -> place in the queue
--   unsealed:<owner>   sorted set: job id -> end of its window, for grants that wait for their payload,
--                      those that are held back among them
--
-- A lane holds the jobs that the same devices may take, so that a claim looks at lanes and never
-- at the jobs behind their heads.

local Lanes = {}

-- By bytes: `<` on strings goes by the server's locale.
local function precedes(left, right)
  for index = 1, math.min(#left, #right) do
    local first, second = string.byte(left, index), string.byte(right, index)
    if first ~= second then
      return first < second
    end
  end
  return #left < #right
end

-- Runners that refused the job or asked not to be asked yet, each once, in order.
local function blocked_runners(job)
  local seen, list = {}, {}
  local function add(runner)
    if not seen[runner] then
      seen[runner] = true
      list[#list + 1] = runner
    end
  end
  for _, runner in ipairs(job.refused_by or {}) do
    add(runner)
  end
  for _, entry in ipairs(job.retry_after_ms or {}) do
    add(entry[1])
  end
  if #list > 1 then
    table.sort(list, precedes)
  end
  return list
end

-- The lane of a queued job.
function Lanes.of(job)
  local stub = job.stub
  local blocked = blocked_runners(job)
  local parts = {stub.owner, stub.kind, stub.audience, job.reoffer_to or false, blocked}
  local text = cjson.encode(parts)
  return {digest = redis.sha1hex(text), text = text, parts = parts, blocked = blocked}
end

local function is_blocked(runner, blocked)
  for _, other in ipairs(blocked) do
    if other == runner then
      return true
    end
  end
  return false
end

local function admits(lane, request)
  local owner, kind, audience, reoffer_to, blocked = unpack(lane)
  return request.kinds[kind]
    and (not reoffer_to or reoffer_to == request.runner_id)
    and not is_blocked(request.runner_id, blocked)
    and (audience ~= 'private' or owner == request.owner)
end

-- A lane without jobs is not kept, and a route without lanes leaves the rotation, unless one of
-- its jobs is about to come back.
local function retire(site, owner, digest, comes_back)
  if redis.call('EXISTS', site.base .. 'lane:' .. digest) == 1 then
    return
  end
  redis.call('HDEL', site.base .. 'lanes:' .. owner, digest)
  if not comes_back and redis.call('EXISTS', site.base .. 'lanes:' .. owner) == 0 then
    redis.call('ZREM', site.base .. 'turns', owner)
  end
end

local function tell_open(site, kind, audience, owner, runner)
  Site.tell(site, {'work', owner, kind, audience, runner})
end

-- The word of a lane, unless it is reserved for a runner that is blocked.
local function tell_lane(site, lane, said)
  local owner, kind, audience, reoffer_to, blocked = unpack(lane)
  if reoffer_to and is_blocked(reoffer_to, blocked) then
    return
  end
  local word = cjson.encode({kind, audience, reoffer_to})
  if not said[word] then
    said[word] = true
    tell_open(site, kind, audience, owner, reoffer_to)
  end
end

-- Who may take the jobs of a lane: {owner, kind, audience, reoffer_to or false, blocked}. What cannot
-- be read is worked out again from any of its jobs, since all of them have the same answer.
local function parts_of(site, owner, digest, text)
  local decoded, parts = pcall(cjson.decode, text)
  if decoded and type(parts) == 'table' and type(parts[3]) == 'string' and type(parts[5]) == 'table' then
    return parts
  end
  site.unreadable[#site.unreadable + 1] = ''
  local first = redis.call('ZRANGE', site.base .. 'lane:' .. digest, 0, 0)[1]
  local job = first and Job.load(site, first)
  if not job or job.state ~= QUEUED then
    return nil
  end
  local lane = Lanes.of(job)
  redis.call('HSET', site.base .. 'lanes:' .. owner, digest, lane.text)
  return lane.parts
end

local function tell_all_lanes(site, owner)
  local said = {}
  local lanes = redis.call('HGETALL', site.base .. 'lanes:' .. owner)
  for index = 1, #lanes, 2 do
    local parts = parts_of(site, owner, lanes[index], lanes[index + 1])
    if parts then
      tell_lane(site, parts, said)
    end
  end
end

-- What a step made claimable: a job that came to the queue, or runners that it no longer blocks.
local function tell_step(site, before, job, lane)
  local stub = job.stub
  if not (before and before.lane) then
    tell_lane(site, lane.parts, {})
    return
  end
  for _, runner in ipairs(before.lane.blocked) do
    if not is_blocked(runner, lane.blocked) and (not job.reoffer_to or job.reoffer_to == runner) then
      tell_open(site, stub.kind, stub.audience, stub.owner, runner)
    end
  end
end

local function add(site, job, lane)
  local owner, id = job.stub.owner, job.stub.id
  redis.call('HSET', site.base .. 'lanes:' .. owner, lane.digest, lane.text)
  redis.call('ZADD', site.base .. 'lane:' .. lane.digest, job.sequence, id)
  -- A route that comes back waits for all others; one that is in the rotation keeps its turn.
  redis.call('ZADD', site.base .. 'turns', 'NX', exact(Site.next(site)), owner)
end

-- Moves a job from where it was to where it is and tells what can be claimed now that could not
-- be before. `before` is nil for a new job; `lane` is nil unless the job is queued now.
function Lanes.replace(site, before, job, lane, awaits)
  local owner, id = job.stub.owner, job.stub.id
  local awaited = before ~= nil and UNSEALED[before.state] or false
  local moved = awaits and before ~= nil and before.state ~= job.state
  local left = before and before.lane
  if awaited == awaits and not moved and not left and not lane then
    return
  end
  local unsealed = site.base .. 'unsealed:' .. owner
  local count = redis.call('ZCARD', unsealed)
  local was_full = count >= LIMITS.unsealed_per_route
  if awaited and not awaits then
    count = count - redis.call('ZREM', unsealed, id)
  elseif moved then
    count = count + redis.call('ZADD', unsealed, job.awaiting_until_ms or job.claim.lease_expires_at_ms, id)
  end
  if left then
    redis.call('ZREM', site.base .. 'lane:' .. left.digest, id)
    retire(site, owner, left.digest, lane ~= nil)
  end
  if lane then
    add(site, job, lane)
  end
  if count >= LIMITS.unsealed_per_route then
    return
  end
  if was_full then
    tell_all_lanes(site, owner)
  elseif lane then
    tell_step(site, before, job, lane)
  end
end

-- The routes of these owners that have something queued: {turn, owner}, longest unserved first.
function Lanes.turns(site, owners)
  local found = {}
  local active = redis.call('ZCARD', site.base .. 'turns')
  if #owners <= active then
    for _, owner in ipairs(owners) do
      local turn = redis.call('ZSCORE', site.base .. 'turns', owner)
      if turn then
        found[#found + 1] = {tonumber(turn), owner}
      end
    end
    site.inspected = site.inspected + #owners
  elseif active > 0 then
    local wanted = {}
    for _, owner in ipairs(owners) do
      wanted[owner] = true
    end
    local all = redis.call('ZRANGE', site.base .. 'turns', 0, -1, 'WITHSCORES')
    for index = 1, #all, 2 do
      if wanted[all[index]] then
        found[#found + 1] = {tonumber(all[index + 1]), all[index]}
      end
    end
    site.inspected = site.inspected + active
  end
  table.sort(found, function(left, right)
    return left[1] < right[1]
  end)
  return found
end

-- The route has been served: all others come first.
function Lanes.to_the_end(site, owner)
  local turn = Site.next(site)
  redis.call('ZADD', site.base .. 'turns', 'XX', exact(turn), owner)
  return turn
end

-- Whether no further grant of this route may wait for its payload.
function Lanes.is_full(site, owner)
  local unsealed = site.base .. 'unsealed:' .. owner
  if redis.call('ZCARD', unsealed) < LIMITS.unsealed_per_route then
    return false
  end
  -- Time has passed, so a window that is over belongs to a record that was lost.
  redis.call('ZREMRANGEBYSCORE', unsealed, '-inf', exact(site.now))
  return redis.call('ZCARD', unsealed) >= LIMITS.unsealed_per_route
end

-- The head of a lane: its job and its place, dropping entries whose record was lost. One call
-- drops so many at the most; the next goes on.
local function head(site, owner, digest)
  for _ = 1, LIMITS.lost_per_call do
    local entry = redis.call('ZRANGE', site.base .. 'lane:' .. digest, 0, 0, 'WITHSCORES')
    if not entry[1] then
      break
    end
    site.inspected = site.inspected + 1
    local job = Job.load(site, entry[1])
    if job and job.state == QUEUED then
      return job, tonumber(entry[2])
    end
    redis.call('ZREM', site.base .. 'lane:' .. digest, entry[1])
  end
  retire(site, owner, digest, false)
  return nil
end

-- The first job of a route that this request may be granted, and the lane it is in.
function Lanes.first(site, owner, request)
  local best, best_place, best_lane
  local lanes = redis.call('HGETALL', site.base .. 'lanes:' .. owner)
  for index = 1, #lanes, 2 do
    site.inspected = site.inspected + 1
    local parts = parts_of(site, owner, lanes[index], lanes[index + 1])
    if parts and admits(parts, request) then
      local job, place = head(site, owner, lanes[index])
      if job and (not best or place < best_place) then
        best, best_place, best_lane = job, place, lanes[index]
      end
    end
  end
  return best, best and {digest = best_lane}
end
