-- Carrying out one decided step: the record, every index, the inbox, and who is told.
--
-- Touches, beside what lanes, inbox and leases touch
--   jobs, due         see job.lua
--   awaiting          sorted set: job id -> number of its grant or of the policy's consent to it, for
--                     those the site is asked to seal
--   finished          sorted set: job id -> number of its completion
--   payload:<lease id>, result:<job id>   removed with what they belong to
--   queued            sorted set: job id -> when it was enqueued, for those in the queue

local Steps = {}

-- What the indexes know of a job before a step changes it. `lane` is given by who has found the job
-- in its lane and so need not work it out.
function Steps.before(job, lane)
  return {
    state = job.state,
    claim = job.claim,
    wants_seal = Job.wants_seal(job),
    lane = lane or (job.state == QUEUED and Lanes.of(job) or nil),
    due = Job.due_at(job),
    payload = job.payload,
    result = job.result,
  }
end

local function replace_claim(site, before, job, gone, lease_end)
  local id = job.stub.id
  if before.claim and (gone or not job.claim) then
    Leases.finish(site, before.claim, id)
    Leases.bury(site, before.claim, id, lease_end)
  elseif not before.claim and job.claim then
    Leases.begin(site, job)
  elseif job.state == DONE and before.state ~= DONE then
    Leases.finish(site, job.claim, id)
  end
end

local function replace_in_queue(site, before, job, gone)
  local is_queued = not gone and job.state == QUEUED
  if is_queued and before.state ~= QUEUED then
    redis.call('ZADD', site.base .. 'queued', exact(Job.enqueued_at(job)), job.stub.id)
  elseif before.state == QUEUED and not is_queued then
    redis.call('ZREM', site.base .. 'queued', job.stub.id)
  end
end

local function replace_on_site(site, before, job, gone)
  local id = job.stub.id
  local wants_seal = not gone and Job.wants_seal(job)
  if wants_seal and not before.wants_seal then
    redis.call('ZADD', site.base .. 'awaiting', job.claim.asked or job.claim.number, id)
  elseif before.wants_seal and not wants_seal then
    redis.call('ZREM', site.base .. 'awaiting', id)
  end
  if before.payload and (gone or not job.payload) then
    redis.call('UNLINK', site.base .. 'payload:' .. before.claim.lease_id)
  end
  if before.result and gone then
    redis.call('ZREM', site.base .. 'finished', id)
    redis.call('UNLINK', site.base .. 'result:' .. id)
    Site.add_bytes(site, -before.result.bytes)
  elseif job.result and not before.result then
    redis.call('ZADD', site.base .. 'finished', job.completion, id)
    Site.add_bytes(site, job.result.bytes)
  end
end

local function inform(site, before, job, step)
  if step.notice then
    Inbox.post(site, job, step.notice)
  elseif step.gone then
    Inbox.clear_job(site, job.stub.id)
  elseif before.wants_seal and not Job.wants_seal(job) then
    Inbox.withdraw(site, job.stub.id)
  end
end

local function write(site, before, job, gone)
  if gone then
    redis.call('HDEL', site.base .. 'jobs', job.stub.id)
    redis.call('ZREM', site.base .. 'due', Job.due_member(job))
    return nil
  end
  local due = Job.due_at(job)
  if due ~= before.due then
    Job.expect_due(site, job, due)
  end
  return Job.save(site, job)
end

local NOTHING = {}

-- Takes a step. `before` are the facts from before it, nil for a new job; `job` is as it is now,
-- or as it was when `step.gone`. A step: gone, notice {kind, word}, lease_end, wasted, word.
-- Answers with the new text of the record.
function Steps.take(site, before, job, step)
  local gone = step.gone or false
  local lane = not gone and job.state == QUEUED and Lanes.of(job) or nil
  Lanes.replace(site, before, job, lane, not gone and UNSEALED[job.state] or false)
  if step.word then
    Site.tell(site, step.word)
  end
  before = before or NOTHING
  replace_claim(site, before, job, gone, step.lease_end)
  replace_in_queue(site, before, job, gone)
  replace_on_site(site, before, job, gone)
  if step.wasted then
    Churn.count(site, job.stub.owner)
  end
  inform(site, before, job, step)
  return write(site, before, job, gone)
end
