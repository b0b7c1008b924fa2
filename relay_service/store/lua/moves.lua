-- The moves of a job that several commands share, and what time alone makes of it.
-- Every bound is inclusive: at the instant itself it is over. Touches `due`, see job.lua.

local Moves = {}

-- The job is forgotten and its site is told why.
function Moves.ended(why, lease_end)
  return {gone = true, notice = {kind = 'ended', word = why}, lease_end = lease_end}
end

-- What the holder of a job must hear: 'payload-ready', 'cancel-requested', or why its lease ended.
function Moves.lease_word(job, fact)
  return {'lease', job.claim.runner_id, job.stub.id, job.claim.lease_id, fact}
end

-- Drops the retry-after entries that are over; one that ends now is.
function Moves.drop_retries(job, now)
  local pending = {}
  for _, entry in ipairs(job.retry_after_ms or {}) do
    if entry[2] > now then
      pending[#pending + 1] = entry
    end
  end
  job.retry_after_ms = #pending > 0 and pending or nil
end

-- The job goes back to its place in the queue and its payload is destroyed: the next holder has
-- other keys. A reservation starts its wait again.
function Moves.requeued(job, cause, lease_end, now)
  job.state = QUEUED
  job.claim = nil
  job.payload = nil
  job.awaiting_until_ms = nil
  job.attempts_before_seal = nil
  job.sticky_until_ms = job.reoffer_to and now + LIMITS.awaiting_payload_ms or nil
  Moves.drop_retries(job, now)
  return {notice = {kind = 'requeued', word = cause}, lease_end = lease_end}
end

-- A grant that was held back is over; since nobody was told of it, nobody is told of that.
function Moves.taken_back(job, now)
  local step = Moves.requeued(job, 'released', 'released', now)
  step.notice = nil
  return step
end

-- A grant came to nothing through its site: counted, and evicted the third time in a row. From now
-- on the job is offered to this one holder, so that a site which abandons a job again and again
-- learns of one device and not of a fleet.
function Moves.wasted(job, cause, attempts, lease_end, now)
  local step
  if attempts >= LIMITS.seal_attempts then
    step = Moves.ended('evicted-unsealed', lease_end)
  else
    job.seal_attempts = attempts
    job.reoffer_to = job.reoffer_to or job.claim.runner_id
    step = Moves.requeued(job, cause, lease_end, now)
  end
  step.wasted = true
  return step
end

local Lapses = {}

local function told(job, lease_end, make)
  local word = Moves.lease_word(job, lease_end)
  local step = make()
  step.word = word
  return step
end

local function expired(job)
  if not HELD[job.state] then
    -- The holder of a grant that is held back knows nothing of it.
    return Moves.ended('expired', job.claim and 'deadline-passed' or nil)
  end
  local why, lease_end = 'expired', 'deadline-passed'
  if job.cancelled then
    why, lease_end = 'cancelled', 'cancelled'
  end
  return told(job, lease_end, function()
    return Moves.ended(why, lease_end)
  end)
end

local function lapsed(job, now)
  if job.state == AUTHORISING then
    -- The relay that asked has died, or the policy took too long: neither is the site's fault.
    return Moves.taken_back(job, now)
  end
  if job.cancelled then
    return told(job, 'cancelled', function()
      return Moves.ended('cancelled', 'cancelled')
    end)
  end
  if job.state == AWAITING then
    return told(job, 'window-lapsed', function()
      return Moves.wasted(job, 'window-lapsed', (job.seal_attempts or 0) + 1, 'window-lapsed', now)
    end)
  end
  return told(job, 'expired', function()
    return Moves.requeued(job, 'lease-lapsed', 'expired', now)
  end)
end

-- A queued job: the runner it is reserved for did not come, or may be asked again.
local function waited(job, now)
  Moves.drop_retries(job, now)
  if not job.sticky_until_ms or job.sticky_until_ms > now then
    return {}
  end
  local attempts = (job.seal_attempts or 0) + 1
  if attempts >= LIMITS.seal_attempts then
    return Moves.ended('evicted-unsealed')
  end
  job.seal_attempts = attempts
  job.sticky_until_ms = now + LIMITS.awaiting_payload_ms
  return {}
end

-- The step that is due; the deadline of the work counts before the clocks of its holder.
local function step_of(job, now)
  if job.state == DONE then
    return Moves.ended('result-dropped')
  end
  if tonumber(job.stub.deadline_at_ms) <= now then
    return expired(job)
  end
  if job.state == QUEUED then
    return waited(job, now)
  end
  return lapsed(job, now)
end

local function lapse(site, member, swept)
  if string.sub(member, 1, 1) == '~' then
    if not Inbox.clear_end(site, string.sub(member, 2)) then
      redis.call('ZREM', site.base .. 'due', member)
    end
    return
  end
  local id = string.sub(member, 17)
  local job = Job.load(site, id)
  if not job or Job.due_member(job) ~= member then
    redis.call('ZREM', site.base .. 'due', member)
    return
  end
  local before = Steps.before(job)
  if before.due > site.now then
    Job.expect_due(site, job, before.due)
    return
  end
  local step = step_of(job, site.now)
  Steps.take(site, before, job, step)
  if step.gone then
    swept.ended[#swept.ended + 1] = id
  elseif job.state ~= before.state then
    swept.requeued[#swept.requeued + 1] = id
  end
end

-- The instant that is next due at a site, nil when there is none.
function Lapses.next_due(site)
  local first = redis.call('ZRANGE', site.base .. 'due', 0, 0, 'WITHSCORES')
  return tonumber(first[2] or nil)
end

-- Takes every step that is due, in order of its instant and then of its place. False when there
-- was more than one call may do: the caller repeats it.
function Lapses.pass(site, swept)
  if not site.hint or site.hint > site.now then
    return true
  end
  for _ = 1, LIMITS.lapses_per_call do
    local member = redis.call('ZRANGEBYSCORE', site.base .. 'due', '-inf', exact(site.now), 'LIMIT', 0, 1)[1]
    if not member then
      Site.set_hint(site, Lapses.next_due(site))
      return true
    end
    lapse(site, member, swept)
  end
  return false
end
