-- What the relays on one server tell each other beside jobs.
--
-- Touches
--   <prefix>{runner tag}:epoch  string: epoch of the latest stream of the device
--   <prefix>{projection}:shared hash: revision, document (not read here)
-- and publishes on the channel `<prefix>changes`, which its own caller hears by the reply.

local Relays = {}

local function publish(key, origin, word)
  local text = cjson.encode({origin, '', {word}})
  redis.call('PUBLISH', string.match(key, '^[^{]*') .. 'changes', text)
  return text
end

-- Keys: epoch. Arguments: clock, origin, runner id, session id, time to keep it in ms.
-- Answers: {epoch, what was published}. The clock is the floor, so that epochs grow even over a
-- lost database.
function Relays.open_session(keys, arguments)
  local now = Clock.at(arguments[1], Clock.micros())
  local epoch = exact(math.max(now, tonumber(redis.call('GET', keys[1]) or 0) + 1))
  redis.call('SET', keys[1], epoch, 'PX', arguments[5])
  return {epoch, publish(keys[1], arguments[2], {'session', arguments[3], arguments[4], epoch})}
end

-- Keys: shared. Arguments: origin, revision, document. Answers: {what was published}, {false} when
-- the one that is there is as new.
function Relays.share_projection(keys, arguments)
  local known = tonumber(redis.call('HGET', keys[1], 'revision') or -1)
  if known >= tonumber(arguments[2]) then
    return {false}
  end
  redis.call('HSET', keys[1], 'revision', arguments[2], 'document', arguments[3])
  return {publish(keys[1], arguments[1], {'projection', arguments[2]})}
end

-- Keys: shared. Answers: {revision, document}, both false when there is none.
function Relays.shared_projection(keys)
  return redis.call('HMGET', keys[1], 'revision', 'document')
end
