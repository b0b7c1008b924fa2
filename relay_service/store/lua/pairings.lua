-- Pairings, all in one slot.
--
-- Every key begins with the base, `<prefix>{pairings}:`. Whatever names a key below leaves the base
-- out. Touches
--   waiting      sorted set: pairing id -> when it expires, for those nobody has decided about
--   users        hash: user code -> pairing id
--   identities   hash: identity key -> pairing id
--   expiries     sorted set: pairing id -> when it expires, for all
--   of:<id>      hash: user, identity, about (not read here), expires, and once it is decided
--                state, owner, runner
-- and publishes on the channel `<prefix>changes`. `expires` counts, whatever the server has deleted.

local Pairings = {}

local function forget_pairing(base, id)
  local user, identity = unpack(redis.call('HMGET', base .. 'of:' .. id, 'user', 'identity'))
  redis.call('DEL', base .. 'of:' .. id)
  redis.call('ZREM', base .. 'expiries', id)
  redis.call('ZREM', base .. 'waiting', id)
  if user and redis.call('HGET', base .. 'users', user) == id then
    redis.call('HDEL', base .. 'users', user)
  end
  if identity and redis.call('HGET', base .. 'identities', identity) == id then
    redis.call('HDEL', base .. 'identities', identity)
  end
end

local function purge_pairings(base, now)
  local gone = redis.call('ZRANGEBYSCORE', base .. 'expiries', '-inf', exact(now), 'LIMIT', 0, LIMITS.pairings_per_purge)
  for _, id in ipairs(gone) do
    forget_pairing(base, id)
  end
end

local function is_alive(base, id, now)
  local expires = id and redis.call('HGET', base .. 'of:' .. id, 'expires')
  return expires and tonumber(expires) > now
end

local function described(base, id, now)
  local fields = redis.call('HMGET', base .. 'of:' .. id, 'user', 'about', 'expires', 'state', 'owner', 'runner')
  return {id, exact(now), unpack(fields)}
end

-- Keys: base. Arguments: clock, pairing id, user code, identity key, about. Answers: {outcome,
-- expires}; the outcome is 'begun', 'code-taken' or 'at-capacity'.
function Pairings.begin(keys, arguments)
  local base, now = keys[1], Clock.at(arguments[1], Clock.micros())
  local id, user, identity, about = unpack(arguments, 2)
  purge_pairings(base, now)
  local earlier = redis.call('HGET', base .. 'identities', identity)
  local holder = redis.call('HGET', base .. 'users', user)
  if is_alive(base, id, now) or (holder and holder ~= earlier and is_alive(base, holder, now)) then
    return {'code-taken', false}
  end
  -- Not all that is there: an expired one that was not purged yet counts for nothing.
  local waiting = redis.call('ZCOUNT', base .. 'waiting', '(' .. exact(now), '+inf')
  local freed = earlier and redis.call('ZSCORE', base .. 'waiting', earlier)
  if freed and tonumber(freed) > now then
    waiting = waiting - 1
  end
  if waiting >= LIMITS.outstanding_pairings then
    return {'at-capacity', false}
  end
  if earlier then
    forget_pairing(base, earlier)
  end
  local expires = exact(now + LIMITS.pairing_life_ms)
  redis.call('HSET', base .. 'of:' .. id, 'user', user, 'identity', identity, 'about', about, 'expires', expires)
  redis.call('ZADD', base .. 'expiries', expires, id)
  redis.call('ZADD', base .. 'waiting', expires, id)
  redis.call('HSET', base .. 'users', user, id)
  redis.call('HSET', base .. 'identities', identity, id)
  return {'begun', expires}
end

-- Keys: base. Arguments: clock, pairing id, or '' and a user code. Answers: {} or the pairing.
function Pairings.find(keys, arguments)
  local base, now = keys[1], Clock.at(arguments[1], Clock.micros())
  local id = arguments[2]
  if id == '' then
    id = redis.call('HGET', base .. 'users', arguments[3])
  end
  if not is_alive(base, id, now) then
    return {}
  end
  return described(base, id, now)
end

-- Keys: base. Arguments: clock, origin, pairing id, state, owner, runner id. Answers: {} for one
-- that is not there, else {what was published or false, the pairing}.
function Pairings.decide(keys, arguments)
  local base, now = keys[1], Clock.at(arguments[1], Clock.micros())
  local origin, id, state, owner, runner = unpack(arguments, 2)
  if not is_alive(base, id, now) then
    return {}
  end
  if redis.call('HEXISTS', base .. 'of:' .. id, 'state') == 1 then
    return {false, described(base, id, now)}
  end
  redis.call('HSET', base .. 'of:' .. id, 'state', state, 'owner', owner, 'runner', runner)
  redis.call('ZREM', base .. 'waiting', id)
  local text = cjson.encode({origin, '', {{'pairing', id}}})
  redis.call('PUBLISH', string.match(base, '^[^{]*') .. 'changes', text)
  return {text, described(base, id, now)}
end

-- Keys: base. Arguments: clock, how many. Answers: the pairings that wait, the first to expire
-- first.
function Pairings.pending(keys, arguments)
  local base, now = keys[1], Clock.at(arguments[1], Clock.micros())
  local found = {}
  local ids = redis.call('ZRANGEBYSCORE', base .. 'waiting', '(' .. exact(now), '+inf', 'LIMIT', 0, arguments[2])
  for _, id in ipairs(ids) do
    if is_alive(base, id, now) then
      found[#found + 1] = described(base, id, now)
    end
  end
  return found
end
