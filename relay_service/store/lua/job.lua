-- The record of a job: how it is kept, when it can be read, when time next changes it.
--
-- Touches
--   jobs        hash: job id -> record (JSON)
--   unreadable  hash: job id -> what stood in `jobs` and could not be read, for an operator
--   due         sorted set: place and id of a job -> the instant at which time changes it
--   finished    sorted set: job id -> number of its completion (a lost record leaves it)
--   result:<job id>, payload:<lease id>  ciphertext, kept apart so that it is never re-encoded
--
-- A record: v (version), sequence, state, stub, and as the state has it claim, awaiting_until_ms,
-- seal_attempts, attempts_before_seal, reoffer_to, sticky_until_ms, refused_by, retry_after_ms,
-- cancelled, cancel_acknowledged, payload and result (headers), disposition, retained_until_ms;
-- completion (number), outlook_at_ms and requeue (its rows in the inbox). What does not apply is
-- left out, empty lists too, since JSON made here cannot tell them from empty objects.

local VERSION = 1
local UNREADABLE_KEPT = 1000

local QUEUED, AWAITING, READY, RUNNING, DONE = 'queued', 'awaiting-payload', 'ready', 'running', 'done'
local HELD = {[AWAITING] = true, [READY] = true, [RUNNING] = true}
local AUDIENCES = {private = true, team = true}
local SIZE_CLASSES = {small = true, medium = true, large = true, unbounded = true}
local DIRECTIONS = {payload = true, result = true}
local DISPOSITIONS = {ok = true, error = true, canceled = true}

local Job = {}

local function is_text(...)
  for index = 1, select('#', ...) do
    if type(select(index, ...)) ~= 'string' then
      return false
    end
  end
  return true
end

local function is_stub(stub, id)
  return type(stub) == 'table' and stub.id == id
    and is_text(stub.kind, stub.owner, stub.site, stub.deadline_at_ms, stub.purpose or '')
    and AUDIENCES[stub.audience] and SIZE_CLASSES[stub.size_class]
    and type(stub.streaming) == 'boolean' and tonumber(stub.deadline_at_ms)
end

local function is_claim(claim)
  return type(claim) == 'table'
    and is_text(claim.runner_id, claim.owner, claim.device, claim.key_id, claim.lease_id, claim.number)
    and string.match(claim.device, '^[%w_-]*%.[%w_-]*%.[%w_-]*$')
    and type(claim.lease_expires_at_ms) == 'number' and tonumber(claim.number)
end

local function is_header(header)
  return type(header) == 'table' and is_text(header.recipient_key_id, header.sender_key_id)
    and DIRECTIONS[header.direction] and is_text(header.deadline_at_ms)
    and type(header.bytes) == 'number'
end

local function is_optional(value, kind)
  return value == nil or type(value) == kind
end

local function has_state(job)
  if job.state == QUEUED then
    return job.claim == nil
  end
  if not is_claim(job.claim) then
    return false
  end
  if job.state == AWAITING then
    return type(job.awaiting_until_ms) == 'number'
  end
  if job.state == READY or job.state == RUNNING then
    return is_header(job.payload)
  end
  return job.state == DONE and is_header(job.result) and DISPOSITIONS[job.disposition]
    and type(job.retained_until_ms) == 'number' and is_text(job.completion)
end

-- Who is not offered the job, and how often it came back.
local function has_marks(job)
  if not (is_optional(job.refused_by, 'table') and is_optional(job.retry_after_ms, 'table')) then
    return false
  end
  for _, runner in ipairs(job.refused_by or {}) do
    if not is_text(runner) then
      return false
    end
  end
  for _, entry in ipairs(job.retry_after_ms or {}) do
    if type(entry) ~= 'table' or not is_text(entry[1]) or type(entry[2]) ~= 'number' then
      return false
    end
  end
  local requeue = job.requeue
  return requeue == nil or (type(requeue) == 'table' and is_text(requeue.cause)
    and type(requeue.count) == 'number' and type(requeue.at_ms) == 'number')
end

local function is_readable(job, id)
  return type(job) == 'table' and job.v == VERSION
    and is_text(job.sequence) and tonumber(job.sequence)
    and is_stub(job.stub, id) and has_state(job) and has_marks(job)
    and is_optional(job.reoffer_to, 'string') and is_optional(job.sticky_until_ms, 'number')
    and is_optional(job.seal_attempts, 'number') and is_optional(job.attempts_before_seal, 'number')
    and is_optional(job.outlook_at_ms, 'number')
end

-- What cannot be read is put aside: it is not granted, not counted and not looked at again.
-- Places in indexes that its record alone could name are dropped when they come up.
local function put_aside(site, id, text, record)
  site.unreadable[#site.unreadable + 1] = id
  redis.call('HDEL', site.base .. 'jobs', id)
  if redis.call('HLEN', site.base .. 'unreadable') < UNREADABLE_KEPT then
    redis.call('HSET', site.base .. 'unreadable', id, text)
  end
  local claim = type(record) == 'table' and record.claim
  if type(claim) == 'table' and is_text(claim.lease_id) then
    redis.call('UNLINK', site.base .. 'payload:' .. claim.lease_id)
  end
  if redis.call('ZREM', site.base .. 'finished', id) == 1 then
    local result = site.base .. 'result:' .. id
    Site.add_bytes(site, -redis.call('STRLEN', result))
    redis.call('UNLINK', result)
  end
end

-- The job and its text, nil when there is none that can be read.
function Job.load(site, id)
  local text = redis.call('HGET', site.base .. 'jobs', id)
  if not text then
    return nil
  end
  local decoded, job = pcall(cjson.decode, text)
  if decoded and is_readable(job, id) then
    return job, text
  end
  put_aside(site, id, text, decoded and job)
  return nil
end

function Job.save(site, job)
  local text = cjson.encode(job)
  redis.call('HSET', site.base .. 'jobs', job.stub.id, text)
  return text
end

-- Members sort by place, so that what is due at one instant goes in order.
function Job.due_member(job)
  return string.format('%016.0f', tonumber(job.sequence)) .. job.stub.id
end

-- The first instant at which time changes this job. A lease does not bound the wait for the
-- site, which has its own window, and a finished job is not bound by the deadline of the work.
function Job.due_at(job)
  if job.state == DONE then
    return job.retained_until_ms
  end
  local due = tonumber(job.stub.deadline_at_ms)
  if job.state == QUEUED then
    due = math.min(due, job.sticky_until_ms or due)
    for _, entry in ipairs(job.retry_after_ms or {}) do
      due = math.min(due, entry[2])
    end
    return due
  end
  return math.min(due, job.awaiting_until_ms or job.claim.lease_expires_at_ms)
end

-- Whether the site is asked to seal this job.
function Job.wants_seal(job)
  return job.state == AWAITING and not job.cancelled
end

function Job.expect_due(site, job, instant)
  redis.call('ZADD', site.base .. 'due', exact(instant), Job.due_member(job))
  Site.due(site, instant)
end

-- Ciphertext that is small goes along with an answer; the caller fetches the rest.
function Job.ciphertext(site, header, key)
  if not header or header.bytes > LIMITS.inline_bytes then
    return false
  end
  return redis.call('GET', site.base .. key)
end

-- A job as an answer: {record, payload or false, result or false}.
function Job.answer(site, job, text)
  local lease = job.claim and job.claim.lease_id or ''
  return {
    text,
    Job.ciphertext(site, job.payload, 'payload:' .. lease),
    Job.ciphertext(site, job.result, 'result:' .. job.stub.id),
  }
end
