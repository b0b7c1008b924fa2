-- The record of a job: how it is kept, when it can be read, when time next changes it.
--
-- Touches
--   jobs        hash: job id -> record (JSON)
--   unreadable  hash: job id -> what stood in `jobs` and could not be read, for an operator
--   due         sorted set: place and id of a job -> the instant at which time changes it
--   finished    sorted set: job id -> number of its completion (a lost record leaves it)
--   result:<job id>, payload:<lease id>  ciphertext, kept apart so that it is never re-encoded
--
-- A record: v (version), sequence, state, stub, enqueued_at_ms, and as the state has it claim, awaiting_until_ms,
-- seal_attempts, attempts_before_seal, reoffer_to, sticky_until_ms, refused_by, retry_after_ms,
-- cancelled, cancel_acknowledged, payload and result (headers), disposition, retained_until_ms;
-- completion (number), outlook_at_ms and requeue (its rows in the inbox). What does not apply is
-- left out, empty lists too, since JSON made here cannot tell them from empty objects.

local VERSION = 1
local UNREADABLE_KEPT = 1000

local QUEUED, AUTHORISING, AWAITING = 'queued', 'authorising', 'awaiting-payload'
local READY, RUNNING, DONE = 'ready', 'running', 'done'
-- States whose holder knows of its lease.
local HELD = {[AWAITING] = true, [READY] = true, [RUNNING] = true}
-- States that count against what a route may have unsealed.
local UNSEALED = {[AUTHORISING] = true, [AWAITING] = true}
local AUDIENCES = {private = true, team = true}
local SIZE_CLASSES = {small = true, medium = true, large = true, unbounded = true}
local DIRECTIONS = {payload = true, result = true}
local DISPOSITIONS = {ok = true, error = true, canceled = true}

local Job = {}

-- The checks are spelt out field by field: they run for every record that is looked at, and a call
-- each would cost more than reading the record.

local function is_stub(stub, id)
  return type(stub) == 'table' and stub.id == id
    and type(stub.kind) == 'string' and type(stub.owner) == 'string' and type(stub.site) == 'string'
    and AUDIENCES[stub.audience] and SIZE_CLASSES[stub.size_class] and type(stub.streaming) == 'boolean'
    and (stub.purpose == nil or type(stub.purpose) == 'string')
    and type(stub.deadline_at_ms) == 'string' and tonumber(stub.deadline_at_ms)
end

local function is_claim(claim)
  return type(claim) == 'table' and type(claim.runner_id) == 'string' and type(claim.owner) == 'string'
    and type(claim.key_id) == 'string' and type(claim.lease_id) == 'string'
    and type(claim.lease_expires_at_ms) == 'number'
    and type(claim.number) == 'string' and tonumber(claim.number)
    and (claim.signed_grant == nil or type(claim.signed_grant) == 'string')
    and (claim.asked == nil or type(claim.asked) == 'string' and tonumber(claim.asked))
    and type(claim.device) == 'string' and string.find(claim.device, '^[%w_-]*%.[%w_-]*%.[%w_-]*$')
end

local function is_header(header)
  return type(header) == 'table' and type(header.bytes) == 'number'
    and type(header.recipient_key_id) == 'string' and type(header.sender_key_id) == 'string'
    and DIRECTIONS[header.direction] and type(header.deadline_at_ms) == 'string'
end

local function has_state(job)
  local state = job.state
  if state == QUEUED then
    return job.claim == nil
  end
  if not is_claim(job.claim) then
    return false
  end
  if state == AUTHORISING then
    return true
  end
  if state == AWAITING then
    return type(job.awaiting_until_ms) == 'number'
  end
  if state == READY or state == RUNNING then
    return is_header(job.payload)
  end
  return state == DONE and is_header(job.result) and DISPOSITIONS[job.disposition]
    and type(job.retained_until_ms) == 'number' and type(job.completion) == 'string'
end

local function are_refusals(refusals)
  if type(refusals) ~= 'table' then
    return false
  end
  for _, runner in ipairs(refusals) do
    if type(runner) ~= 'string' then
      return false
    end
  end
  return true
end

local function are_retries(entries)
  if type(entries) ~= 'table' then
    return false
  end
  for _, entry in ipairs(entries) do
    if type(entry) ~= 'table' or type(entry[1]) ~= 'string' or type(entry[2]) ~= 'number' then
      return false
    end
  end
  return true
end

local function is_requeue(requeue)
  return type(requeue) == 'table' and type(requeue.cause) == 'string'
    and type(requeue.count) == 'number' and type(requeue.at_ms) == 'number'
end

local function is_number_or_nil(value)
  return value == nil or type(value) == 'number'
end

local function is_readable(job, id)
  return type(job) == 'table' and job.v == VERSION
    and type(job.sequence) == 'string' and tonumber(job.sequence)
    and is_stub(job.stub, id) and has_state(job)
    and (job.refused_by == nil or are_refusals(job.refused_by))
    and (job.retry_after_ms == nil or are_retries(job.retry_after_ms))
    and (job.requeue == nil or is_requeue(job.requeue))
    and (job.reoffer_to == nil or type(job.reoffer_to) == 'string')
    and is_number_or_nil(job.sticky_until_ms) and is_number_or_nil(job.outlook_at_ms)
    and is_number_or_nil(job.enqueued_at_ms)
    and is_number_or_nil(job.seal_attempts) and is_number_or_nil(job.attempts_before_seal)
end

-- What cannot be read is put aside: it is not granted, not counted and not looked at again.
-- Places in indexes that its record alone could name are dropped when they come up.
local function put_aside(site, id, text, record)
  site.unreadable[#site.unreadable + 1] = id
  redis.call('HDEL', site.base .. 'jobs', id)
  redis.call('ZREM', site.base .. 'queued', id)
  if redis.call('HLEN', site.base .. 'unreadable') < UNREADABLE_KEPT then
    redis.call('HSET', site.base .. 'unreadable', id, text)
  end
  local claim = type(record) == 'table' and record.claim
  if type(claim) == 'table' and type(claim.lease_id) == 'string' then
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

-- When it was enqueued. Places follow the clock in microseconds, for records that do not say.
function Job.enqueued_at(job)
  return job.enqueued_at_ms or math.floor(tonumber(job.sequence) / 1000)
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

-- The first instant at which time changes this job. The lease of a grant that is held back is the
-- time that the policy may take. Once it is authorised, a lease does not bound the wait for the site,
-- which has its own window, and a finished job is not bound by the deadline of the work.
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
