-- What belongs to no single site, each key in a slot of its own.
--
-- Touches
--   <prefix>{sites}:due       sorted set: site id -> an instant not after the first one due there
--   <prefix>{sites}:versions  hash: site id -> version of that instant
--   <prefix>{runner tag}:sites  sorted set: site tag -> until when the runner may hold leases there
--   <prefix>{presence}:known  hash: runner id -> presence (JSON, not read here)
--   <prefix>{presence}:until  sorted set: runner id -> when it is forgotten
--   <prefix>{nonce tag}:nonce string: until when the nonce is used up
--
-- None of these decides about a job. The sites of a runner and the instants of the sites are hints:
-- they name too much rather than too little, and what they name is looked at where it is.

local Commons = {}

-- No keys. Arguments: clock. Answers with the instant.
function Commons.now(_, arguments)
  return Clock.at(arguments[1], Clock.micros())
end

-- Keys: due, versions. Arguments: site id, version, instant ('' for none). An older word than the
-- known one changes nothing, in whatever order replicas deliver theirs.
function Commons.note_site(keys, arguments)
  local id, version, instant = arguments[1], tonumber(arguments[2]), arguments[3]
  if tonumber(redis.call('HGET', keys[2], id) or -1) <= version then
    redis.call('HSET', keys[2], id, exact(version))
    redis.call('ZADD', keys[1], instant == '' and '+inf' or instant, id)
  end
  return 1
end

-- Keys: due. Arguments: clock. Answers: {now, ids of sites that may be due, earliest instant or
-- false}.
function Commons.due_sites(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  local due = redis.call('ZRANGEBYSCORE', keys[1], '-inf', exact(now), 'LIMIT', 0, LIMITS.sites_per_sweep)
  local first = redis.call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')
  return {now, due, first[2] ~= 'inf' and first[1] and {first[1], first[2]} or false}
end

-- Keys: sites. Arguments: clock, site tags. The runner is about to hold leases at these sites.
function Commons.note_runner(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  for index = 2, #arguments do
    redis.call('ZADD', keys[1], exact(now + LIMITS.runner_site_kept_ms), arguments[index])
  end
  redis.call('ZREMRANGEBYSCORE', keys[1], '-inf', exact(now))
  redis.call('PEXPIRE', keys[1], LIMITS.runner_site_kept_ms)
  return now
end

local function forget_absent(keys, now)
  local absent = redis.call('ZRANGEBYSCORE', keys[2], '-inf', exact(now), 'LIMIT', 0, LIMITS.absent_per_call)
  for _, runner in ipairs(absent) do
    redis.call('ZREM', keys[2], runner)
    redis.call('HDEL', keys[1], runner)
  end
end

-- Keys: known, until. Arguments: clock, runner id, presence. Answers with the instant.
function Commons.seen(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  forget_absent(keys, now)
  redis.call('HSET', keys[1], arguments[2], exact(now) .. ' ' .. arguments[3])
  redis.call('ZADD', keys[2], exact(now + LIMITS.presence_retention_ms), arguments[2])
  return now
end

-- Keys: known, until. Arguments: clock, runner id. Answers {presence}, {false} for a runner that is
-- not known or was not seen for long.
function Commons.presence(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  local until_ms = redis.call('ZSCORE', keys[2], arguments[2])
  if not until_ms or tonumber(until_ms) <= now then
    return {false}
  end
  return {redis.call('HGET', keys[1], arguments[2])}
end

-- Keys: known, until. Arguments: clock. Answers: runner id, presence, and so on.
function Commons.everyone(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  local found = {}
  for _, runner in ipairs(redis.call('ZRANGEBYSCORE', keys[2], '(' .. exact(now), '+inf')) do
    found[#found + 1] = runner
    found[#found + 1] = redis.call('HGET', keys[1], runner)
  end
  return found
end

-- Keys: nonce. Arguments: clock, time to keep it in ms. Answers 1 when it is new, else 0.
function Commons.use_nonce(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  local kept_ms = tonumber(arguments[2])
  if tonumber(redis.call('GET', keys[1]) or 0) > now then
    return 0
  end
  redis.call('SET', keys[1], exact(now + kept_ms), 'PX', math.max(1, kept_ms))
  return 1
end
