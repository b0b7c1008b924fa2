-- What a site does with its jobs: adds, seals, cancels, collects, reads.
-- Touches what steps and inbox touch, and `payload:<lease id>`, `staged:<name>` (see holding.lua).

local Commissioning = {}

-- Answers: {'known' or 'created', job} or {'quota-exceeded'}. A known job is left as it is,
-- whatever its state.
function Commissioning.enqueue(site, stub_text)
  local stub = cjson.decode(stub_text)
  local known, text = Job.load(site, stub.id)
  if known then
    return {'known', Job.answer(site, known, text)}
  end
  local kept = redis.call('ZCARD', site.base .. 'finished')
  if redis.call('HLEN', site.base .. 'jobs') - kept >= LIMITS.unfinished_jobs_per_site then
    return {'quota-exceeded'}
  end
  Inbox.begin(site, stub.id)
  local job = {v = VERSION, sequence = exact(Site.next(site)), state = QUEUED, stub = stub}
  job.enqueued_at_ms = site.now
  return {'created', {Steps.take(site, nil, job, {}), false, false}}
end

-- While a grant is held back its site has not heard of it.
local SEALING = {[QUEUED] = 'stale-lease', [AUTHORISING] = 'stale-lease', [READY] = 'too-late', [RUNNING] = 'too-late', [DONE] = 'too-late'}

-- The lease is compared first: a payload for another grant's device is stale, whoever it is
-- sealed to.
local function refusal_to_seal(job, lease, recipient)
  if job.cancelled and HELD[job.state] then
    return 'cancelled'
  end
  if SEALING[job.state] then
    return SEALING[job.state]
  end
  if job.claim.lease_id ~= lease then
    return 'stale-lease'
  end
  return job.claim.key_id ~= recipient and 'wrong-recipient' or nil
end

-- Answers: {'sealed' or refusal, job} or {'not-found'}.
function Commissioning.seal(site, id, lease, recipient, header, ciphertext, staged)
  local job, text = Job.load(site, id)
  local refusal = job and refusal_to_seal(job, lease, recipient)
  if not job or refusal then
    Holding.discard(site, staged)
    return job and {refusal, Job.answer(site, job, text)} or {'not-found'}
  end
  local before = Steps.before(job)
  Holding.place(site, 'payload:' .. lease, ciphertext, staged)
  job.state = READY
  job.payload = cjson.decode(header)
  job.awaiting_until_ms = nil
  job.attempts_before_seal = job.seal_attempts
  job.seal_attempts = nil
  local saved = Steps.take(site, before, job, {word = Moves.lease_word(job, 'payload-ready')})
  return {'sealed', {saved, false, false}}
end

-- Answers {1}, or {0} when there is no such job. A job that nobody holds is gone at once, of a held
-- one the holder is told, a finished one keeps its result.
function Commissioning.cancel(site, id)
  local job = Job.load(site, id)
  if not job then
    return {0}
  end
  local before = Steps.before(job)
  if job.state == QUEUED then
    Steps.take(site, before, job, Moves.ended('cancelled'))
  elseif job.state == AUTHORISING then
    Steps.take(site, before, job, Moves.ended('cancelled', 'cancelled'))
  elseif job.state ~= DONE and not job.cancelled then
    job.cancelled = true
    Steps.take(site, before, job, {word = Moves.lease_word(job, 'cancel-requested')})
  end
  return {1}
end

local function collect(site, id)
  local job = Job.load(site, id)
  if job then
    if job.state ~= DONE then
      return false
    end
    Steps.take(site, Steps.before(job), job, {gone = true})
  elseif not Inbox.clear_end(site, id) then
    return Inbox.was_job_settled(site, id)
  end
  Inbox.settled_job(site, id)
  return true
end

-- Arguments: job ids and notice ids, JSON lists. Answers with those that are settled.
function Commissioning.acknowledge(site, job_ids, notice_ids)
  local settled = {}
  for _, id in ipairs(cjson.decode(job_ids)) do
    if collect(site, id) then
      settled[#settled + 1] = id
    end
  end
  for _, id in ipairs(cjson.decode(notice_ids)) do
    if Inbox.settle(site, id) then
      settled[#settled + 1] = id
    end
  end
  return settled
end

-- Answers: {rows, sequence to go on from or false}. A row: {sequence, kind, job id, record}.
function Commissioning.notices(site, after, limit)
  local rows, last = Inbox.page(site, after, limit)
  return {rows, last}
end

-- Answers: {job} or {}.
function Commissioning.job(site, id)
  local job, text = Job.load(site, id)
  return {job and Job.answer(site, job, text) or nil}
end

-- Answers: {when the job was enqueued that has been queued the longest, or false}. Entries whose
-- record was lost are dropped, so many at the most.
function Commissioning.oldest_queued(site)
  local key = site.base .. 'queued'
  for _ = 1, LIMITS.lost_per_call do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not first[1] then
      return {false}
    end
    local job = Job.load(site, first[1])
    if job and job.state == QUEUED then
      return {first[2]}
    end
    redis.call('ZREM', key, first[1])
  end
  return {false}
end

-- Arguments: `awaiting` or `finished`, the number to go on after, how many.
-- Answers: {jobs, number to go on from or false}.
function Commissioning.list(site, index, after, limit)
  local key = site.base .. index
  local jobs = {}
  local found = redis.call('ZRANGEBYSCORE', key, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for position = 1, #found, 2 do
    local job, text = Job.load(site, found[position])
    if job and (index == 'finished' and job.state == DONE or index == 'awaiting' and Job.wants_seal(job)) then
      jobs[#jobs + 1] = Job.answer(site, job, text)
    else
      redis.call('ZREM', key, found[position])
    end
  end
  return {jobs, found[#found] or false}
end
