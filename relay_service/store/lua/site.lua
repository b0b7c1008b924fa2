-- One site while an operation runs on it.
--
-- Every key of a site begins with its base, `<prefix>{<tag>}:`, so that all of them lie in one
-- hash slot. Whatever names a key below leaves the base out. This file touches
--   site  hash: id; tick, the last number given out; bytes, the ciphertext of all kept results;
--         hint, an instant that is never after the first one due; version, of the hint
-- and publishes on the channel `<prefix>changes`.

-- Numbers beyond 10^14 lose digits in JSON and in `..`, so they travel as text.
local function exact(number)
  return string.format('%.0f', number)
end

local Clock = {}

-- Epoch milliseconds: the server's own time, unless a test puts another instant in its place.
function Clock.at(setting, micros)
  return tonumber(setting) or math.floor(micros / 1000)
end

function Clock.micros()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local Site = {}

-- `id` may be empty when the caller knows the site by a lease only. `origin` names the store that
-- asks, which hears of its own changes by the reply.
function Site.open(base, setting, origin, id)
  local micros = Clock.micros()
  local kept = redis.call('HMGET', base .. 'site', 'id', 'tick', 'bytes', 'hint', 'version')
  return {
    base = base,
    origin = origin,
    id = kept[1] or id,
    known = kept[1] and true,
    micros = micros,
    now = Clock.at(setting, micros),
    tick = tonumber(kept[2] or 0),
    bytes = tonumber(kept[3] or 0),
    hint = tonumber(kept[4] or nil),
    version = tonumber(kept[5] or 0),
    changed = {},
    changes = {},
    unreadable = {},
    inspected = 0,
  }
end

-- The next number of this site: places in the queue, turns of routes, grants, inbox rows.
-- It follows the clock in microseconds, so that numbers of different sites can be compared
-- and a cursor from before a lost database lies before every new row.
function Site.next(site)
  site.tick = math.max(site.tick + 1, site.micros)
  site.changed.tick = exact(site.tick)
  return site.tick
end

function Site.add_bytes(site, bytes)
  if bytes ~= 0 then
    site.bytes = math.max(0, site.bytes + bytes)
    site.changed.bytes = exact(site.bytes)
  end
end

-- Something of this site is due at this instant.
function Site.due(site, instant)
  if not site.least_due or instant < site.least_due then
    site.least_due = instant
  end
end

function Site.set_hint(site, instant)
  if site.hint == instant then
    return
  end
  site.hint = instant
  site.version = site.version + 1
  site.changed.hint = instant and exact(instant) or ''
  site.changed.version = site.version
  site.announced = true
end

function Site.tell(site, change)
  site.changes[#site.changes + 1] = change
end

local function write_counters(site)
  local fields = {}
  for name, value in pairs(site.changed) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if #fields == 0 then
    return
  end
  if not site.known then
    fields[#fields + 1] = 'id'
    fields[#fields + 1] = site.id
  end
  redis.call('HSET', site.base .. 'site', unpack(fields))
end

-- Publishes what changed, for all other stores of the deployment.
local function publish(site)
  if #site.changes == 0 then
    return false
  end
  local text = cjson.encode({site.origin, site.id, site.changes})
  redis.call('PUBLISH', string.match(site.base, '^[^{]*') .. 'changes', text)
  return text
end

-- Writes what is left to write, tells what changed and makes the reply:
-- {again, notes, result}. `again` is 1 when time has not caught up and the same call is to be
-- repeated. Notes, when there are any: {site id, hint or false, version, ids that could not be
-- read, what was published or false}.
function Site.close(site, again, result)
  if site.least_due and (not site.hint or site.least_due < site.hint) then
    Site.set_hint(site, site.least_due)
  end
  write_counters(site)
  local published = publish(site)
  local notes = false
  if site.announced or published or #site.unreadable > 0 then
    local hint = site.announced and (site.hint and exact(site.hint) or '') or false
    notes = {site.id, hint, site.version, site.unreadable, published}
  end
  return {again, notes, result}
end
