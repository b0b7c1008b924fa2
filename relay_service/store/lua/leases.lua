-- Who holds what at a site, which claim a grant answered, and leases that are over.
--
-- Touches
--   held:<runner>    sorted set: job id -> number of its grant, for unfinished jobs
--   claims:<runner>  hash: request id -> job ids that it was answered with and still holds (JSON)
--   past             hash: lease id -> {runner, job id, why it ended or false when finished} (JSON)
--   past_until       sorted set: lease id -> until when it is remembered

local Leases = {}

function Leases.held_count(site, runner)
  return redis.call('ZCARD', site.base .. 'held:' .. runner)
end

-- Jobs that a runner holds, in the order of their grants: {job, text}. Those whose grant is held back
-- are among them: they count against what it may hold.
function Leases.held(site, runner)
  local key = site.base .. 'held:' .. runner
  local found = {}
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local job, text = Job.load(site, id)
    local is_held = job and (HELD[job.state] or job.state == AUTHORISING)
    if is_held and job.claim.runner_id == runner then
      found[#found + 1] = {job, text}
    else
      redis.call('ZREM', key, id)
    end
  end
  return found
end

local function answered_ids(site, runner, request)
  local text = redis.call('HGET', site.base .. 'claims:' .. runner, request)
  return text and cjson.decode(text) or {}
end

-- What an earlier claim of this name was answered with, as far as it is still held: texts.
function Leases.answered(site, runner, request)
  local texts = {}
  for _, id in ipairs(answered_ids(site, runner, request)) do
    local job, text = Job.load(site, id)
    local is_held = job and (HELD[job.state] or job.state == AUTHORISING)
    local claim = is_held and not job.cancelled and job.claim
    if claim and claim.runner_id == runner and claim.request == request then
      texts[#texts + 1] = text
    end
  end
  return texts
end

function Leases.begin(site, job)
  local claim, id = job.claim, job.stub.id
  redis.call('ZADD', site.base .. 'held:' .. claim.runner_id, claim.number, id)
  if claim.request then
    local ids = answered_ids(site, claim.runner_id, claim.request)
    ids[#ids + 1] = id
    redis.call('HSET', site.base .. 'claims:' .. claim.runner_id, claim.request, cjson.encode(ids))
  end
end

local function forget_answer(site, claim, id)
  local key = site.base .. 'claims:' .. claim.runner_id
  local others = {}
  for _, other in ipairs(answered_ids(site, claim.runner_id, claim.request)) do
    if other ~= id then
      others[#others + 1] = other
    end
  end
  if #others == 0 then
    redis.call('HDEL', key, claim.request)
  else
    redis.call('HSET', key, claim.request, cjson.encode(others))
  end
end

-- The lease is over, or its job finished.
function Leases.finish(site, claim, id)
  redis.call('ZREM', site.base .. 'held:' .. claim.runner_id, id)
  if claim.request then
    forget_answer(site, claim, id)
  end
end

local function drop_past(site)
  local crowd = redis.call('ZCARD', site.base .. 'past_until') - LIMITS.past_leases
  local oldest = redis.call('ZRANGE', site.base .. 'past_until', 0, 3, 'WITHSCORES')
  for index = 1, #oldest, 2 do
    if tonumber(oldest[index + 1]) > site.now and crowd <= 0 then
      return
    end
    crowd = crowd - 1
    redis.call('ZREM', site.base .. 'past_until', oldest[index])
    redis.call('HDEL', site.base .. 'past', oldest[index])
  end
end

-- Notes why a lease ended; `why` is nil when its job was finished under it.
function Leases.bury(site, claim, id, why)
  local value = cjson.encode({claim.runner_id, id, why or false})
  redis.call('HSET', site.base .. 'past', claim.lease_id, value)
  redis.call('ZADD', site.base .. 'past_until', exact(site.now + LIMITS.maximum_lease_ms), claim.lease_id)
  drop_past(site)
end

-- What is known of a lease that is over, told to its holder only: nil, or {why or false}.
function Leases.past(site, runner, id, lease)
  local until_ms = redis.call('ZSCORE', site.base .. 'past_until', lease)
  if not until_ms or tonumber(until_ms) <= site.now then
    return nil
  end
  local decoded, past = pcall(cjson.decode, redis.call('HGET', site.base .. 'past', lease) or '')
  if not decoded or type(past) ~= 'table' or past[1] ~= runner or past[2] ~= id then
    return nil
  end
  return {past[3]}
end
