-- What the holder of a lease does: takes the payload, reports, gives back, renews.
-- Touches what steps and leases touch, and
--   payload:<lease id>, result:<job id>   ciphertext
--   staged:<name>                         a large ciphertext on its way, written just before

local Holding = {}

-- The job that a runner means by a job id and a lease, if it holds it or finished it under that
-- lease; else nil and why not. In this order, so that a stranger cannot tell a finished job from a
-- live one, and never of a job that the caller neither holds nor names by its lease.
local function named(site, runner, id, lease)
  local job = Job.load(site, id)
  -- A grant that is held back is not known to anybody yet.
  local claim = job and job.state ~= AUTHORISING and job.claim
  if claim and claim.lease_id == lease then
    if claim.runner_id ~= runner then
      return nil, 'not-holder'
    end
    return job
  end
  if claim and claim.runner_id == runner then
    return nil, 'stale-lease'
  end
  return nil, 'not-found'
end

-- Whether a runner holds or has finished a job of this bare id here.
function Holding.holds(site, runner, id)
  local job = Job.load(site, id)
  local claim = job and job.state ~= AUTHORISING and job.claim
  return {claim and claim.runner_id == runner and 1 or 0}
end

local TAKING = {[AWAITING] = 'not-ready', [DONE] = 'terminal'}

-- Answers: {refusal} or {'payload', header (JSON), ciphertext or false when it is large}.
function Holding.take_payload(site, runner, id, lease)
  local job, refusal = named(site, runner, id, lease)
  if job and job.cancelled and HELD[job.state] then
    refusal = 'cancelled'
  end
  refusal = refusal or TAKING[job.state]
  if refusal then
    return {refusal}
  end
  if job.state == READY then
    local before = Steps.before(job)
    job.state = RUNNING
    job.reoffer_to = nil
    Steps.take(site, before, job, {})
  end
  return {'payload', cjson.encode(job.payload), Job.ciphertext(site, job.payload, 'payload:' .. lease)}
end

-- Ciphertext comes as an argument, or under a name when it is too large to go through a script.
function Holding.place(site, key, ciphertext, staged)
  if staged == '' then
    redis.call('SET', site.base .. key, ciphertext)
  else
    redis.call('RENAME', site.base .. 'staged:' .. staged, site.base .. key)
    redis.call('PERSIST', site.base .. key)
  end
end

function Holding.discard(site, staged)
  if staged ~= '' then
    redis.call('UNLINK', site.base .. 'staged:' .. staged)
  end
end

-- Drops the oldest results until the rest is within the site's quota.
local function make_room(site)
  while true do
    local count = redis.call('ZCARD', site.base .. 'finished')
    if count <= 1 or (count <= LIMITS.results_per_site and site.bytes <= LIMITS.result_bytes_per_site) then
      return
    end
    local id = redis.call('ZRANGE', site.base .. 'finished', 0, 0)[1]
    local job = Job.load(site, id)
    if job and job.state == DONE then
      Steps.take(site, Steps.before(job), job, Moves.ended('result-dropped'))
    else
      redis.call('ZREM', site.base .. 'finished', id)
    end
  end
end

local function finish(site, job, header, disposition)
  local before = Steps.before(job)
  job.state = DONE
  job.payload = nil
  job.result = header
  job.disposition = disposition
  job.awaiting_until_ms = nil
  job.retained_until_ms = site.now + LIMITS.result_retention_ms
  job.completion = exact(Site.next(site))
  Steps.take(site, before, job, {notice = {kind = 'result-ready'}})
  make_room(site)
end

-- Answers: {'accepted'}, {'duplicate'}, or {refusal, 1 when this lease finished a job that is
-- collected already and its holder never heard so}.
function Holding.complete(site, runner, id, lease, disposition, header, ciphertext, staged)
  local job, refusal = named(site, runner, id, lease)
  if not job or job.state == DONE then
    Holding.discard(site, staged)
    if job then
      return {'duplicate'}
    end
    local past = refusal == 'not-found' and Leases.past(site, runner, id, lease)
    return {refusal, past and past[1] == false and 1 or 0}
  end
  Holding.place(site, 'result:' .. id, ciphertext, staged)
  finish(site, job, cjson.decode(header), disposition)
  return {'accepted'}
end

local function mark_retry(job, runner, now, retry_after)
  local entries = {}
  for _, entry in ipairs(job.retry_after_ms or {}) do
    if entry[1] ~= runner then
      entries[#entries + 1] = entry
    end
  end
  if retry_after > 0 then
    entries[#entries + 1] = {runner, now + retry_after}
  end
  job.retry_after_ms = #entries > 0 and entries or nil
end

local function refused(site, job, runner)
  job.refused_by = job.refused_by or {}
  job.refused_by[#job.refused_by + 1] = runner
  if job.reoffer_to == runner then
    -- Nobody else is offered the job, so its refusal has to bring the end nearer.
    local attempts = (job.seal_attempts or 0) + 1
    if attempts >= LIMITS.seal_attempts then
      return Moves.ended('evicted-unsealed', 'released')
    end
    job.seal_attempts = attempts
  end
  return Moves.requeued(job, 'refused', 'released', site.now)
end

local function step_of_release(site, job, runner, reason, retry_after)
  if job.cancelled then
    return Moves.ended('cancelled', 'released')
  end
  if retry_after then
    mark_retry(job, runner, site.now, retry_after)
  end
  if reason == 'bad-envelope' and job.state ~= AWAITING then
    return Moves.wasted(job, 'bad-envelope', (job.attempts_before_seal or 0) + 1, 'released', site.now)
  end
  if reason == 'refused' then
    return refused(site, job, runner)
  end
  return Moves.requeued(job, 'released', 'released', site.now)
end

-- The job of a grant, nil when the grant is over.
local function granted(site, runner, id, lease)
  local job, text = Job.load(site, id)
  local claim = job and job.claim
  if claim and claim.lease_id == lease and claim.runner_id == runner then
    return job, text
  end
  return nil
end

-- The policy agrees: window and lease begin now. A repeat changes nothing, the first answer counts.
-- Answers: {site id, text of the job} or {} when the grant is over.
function Holding.authorise(site, runner, id, lease, signed_grant, lease_ms)
  local job, text = granted(site, runner, id, lease)
  if not job then
    return {}
  end
  if job.state ~= AUTHORISING then
    return HELD[job.state] and not job.cancelled and {site.id, text} or {}
  end
  local before = Steps.before(job)
  job.state = AWAITING
  job.claim.signed_grant = signed_grant
  job.claim.lease_expires_at_ms = site.now + tonumber(lease_ms)
  job.claim.asked = exact(Site.next(site))
  job.awaiting_until_ms = site.now + LIMITS.awaiting_payload_ms
  return {site.id, Steps.take(site, before, job, {notice = {kind = 'please-seal'}})}
end

-- The policy does not agree: back to the queue without a word. `refuses` is '1' for never again,
-- retry_after is in ms, '' for none. Answers {1}, {0} when the grant is over.
function Holding.decline(site, runner, id, lease, refuses, retry_after)
  local job = granted(site, runner, id, lease)
  if not job or job.state ~= AUTHORISING then
    return {0}
  end
  local before = Steps.before(job)
  if tonumber(retry_after) then
    mark_retry(job, runner, site.now, tonumber(retry_after))
  end
  local step = refuses == '1' and refused(site, job, runner) or Moves.taken_back(job, site.now)
  if not step.gone then
    step.notice = nil
  end
  Steps.take(site, before, job, step)
  return {1}
end

-- Arguments: leases as a JSON list of {job id, lease id}; retry_after in ms, '' for none.
-- Answers with one 1 or 0 a lease. Marks are written with the requeue, so that a job is at no
-- instant claimable against them; a finished job is never un-finished.
function Holding.release(site, runner, leases, reason, retry_after)
  local answers = {}
  for index, lease in ipairs(cjson.decode(leases)) do
    local job = named(site, runner, lease[1], lease[2])
    local is_held = job and HELD[job.state]
    if is_held then
      local before = Steps.before(job)
      Steps.take(site, before, job, step_of_release(site, job, runner, reason, tonumber(retry_after)))
    end
    answers[index] = is_held and 1 or 0
  end
  return answers
end

local function renew(site, runner, id, lease, lease_ms)
  local job = Job.load(site, id)
  local claim = job and job.claim
  if not claim or claim.lease_id ~= lease then
    local past = Leases.past(site, runner, id, lease)
    if past and past[1] == false then
      return 'completed'
    end
    return past and 'lost ' .. past[1] or 'lost'
  end
  if claim.runner_id ~= runner or job.state == AUTHORISING then
    return 'lost'
  end
  if job.state == DONE then
    return 'completed'
  end
  local before = Steps.before(job)
  claim.lease_expires_at_ms = site.now + lease_ms
  Steps.take(site, before, job, {})
  return job.cancelled and 'cancel-requested' or 'active'
end

-- Answers: {now, one word a lease}. The site's window is left alone: a busy device says nothing
-- about the site.
function Holding.renew(site, runner, leases, lease_ms)
  local words = {}
  for index, lease in ipairs(cjson.decode(leases)) do
    words[index] = renew(site, runner, lease[1], lease[2], tonumber(lease_ms))
  end
  return {site.now, words}
end

-- The holder knows of these cancels; they are not announced again.
function Holding.acknowledge_cancels(site, runner, leases)
  for _, lease in ipairs(cjson.decode(leases)) do
    local job = named(site, runner, lease[1], lease[2])
    if job and job.cancelled and not job.cancel_acknowledged then
      job.cancel_acknowledged = true
      Job.save(site, job)
    end
  end
  return {}
end

-- Answers: {site id, texts of what a runner holds, in the order of the grants}.
function Holding.held(site, runner)
  local texts = {}
  for _, entry in ipairs(Leases.held(site, runner)) do
    if HELD[entry[1].state] then
      texts[#texts + 1] = entry[2]
    end
  end
  return {site.id, texts}
end
