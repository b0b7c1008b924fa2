-- The inbox of a site. Its rows are derived: what a job waits for or how it finished stands in the
-- job's own record, so that a row costs one entry; only the word of a job that is gone is kept here.
--
-- Touches
--   inbox    sorted set: 'o' + job id (what it waits for or how it ended) or 'q' + job id (that it
--            went back to the queue) -> sequence of the row, which is also its notice id
--   ends     hash: job id -> '<epoch ms> <why>', for jobs that ended without a result
--   ended    sorted set: job id -> sequence, for the same jobs
--   due      sorted set: '~' + job id -> when the word of its end is given up
--   settled  sorted set: 'j' + job id or 'n' + notice id -> until when its settling is remembered

local Inbox = {}

local function place(site, member)
  redis.call('ZADD', site.base .. 'inbox', exact(Site.next(site)), member)
end

-- Takes back the word of a job that ended; false when there is none.
function Inbox.clear_end(site, id)
  if redis.call('HDEL', site.base .. 'ends', id) == 0 then
    return false
  end
  redis.call('ZREM', site.base .. 'ended', id)
  redis.call('ZREM', site.base .. 'inbox', 'o' .. id)
  redis.call('ZREM', site.base .. 'due', '~' .. id)
  return true
end

local function post_end(site, id, why)
  place(site, 'o' .. id)
  local given_up = site.now + LIMITS.result_retention_ms
  redis.call('HSET', site.base .. 'ends', id, exact(site.now) .. ' ' .. why)
  redis.call('ZADD', site.base .. 'ended', exact(site.tick), id)
  redis.call('ZADD', site.base .. 'due', exact(given_up), '~' .. id)
  Site.due(site, given_up)
  if redis.call('ZCARD', site.base .. 'ended') > LIMITS.ended_notices_per_site then
    Inbox.clear_end(site, redis.call('ZRANGE', site.base .. 'ended', 0, 0)[1])
  end
end

local function post_requeue(site, job, cause)
  local id = job.stub.id
  local times = job.requeue and job.requeue.count or 0
  job.requeue = {cause = cause, count = times + 1, at_ms = site.now}
  redis.call('ZREM', site.base .. 'inbox', 'o' .. id)
  place(site, 'q' .. id)
end

-- Writes a row: a later outlook replaces the earlier one, an end also the requeue row. A requeue
-- withdraws the request to seal, for the grant that it named is over.
function Inbox.post(site, job, notice)
  local id = job.stub.id
  if notice.kind == 'requeued' then
    post_requeue(site, job, notice.word)
  elseif notice.kind == 'please-seal' then
    place(site, 'o' .. id)
    job.outlook_at_ms = site.now
  else
    if job.requeue then
      redis.call('ZREM', site.base .. 'inbox', 'q' .. id)
      job.requeue = nil
    end
    if notice.kind == 'ended' then
      post_end(site, id, notice.word)
    else
      place(site, 'o' .. id)
      job.outlook_at_ms = site.now
    end
  end
  Site.tell(site, {'notice'})
end

-- Takes a request to seal back.
function Inbox.withdraw(site, id)
  redis.call('ZREM', site.base .. 'inbox', 'o' .. id)
end

-- Settles all rows of a job that is forgotten without a word.
function Inbox.clear_job(site, id)
  redis.call('ZREM', site.base .. 'inbox', 'o' .. id, 'q' .. id)
end

local function remember(site, name)
  local settled = site.base .. 'settled'
  redis.call('ZADD', settled, exact(site.now + LIMITS.settled_kept_ms), name)
  redis.call('ZREMRANGEBYSCORE', settled, '-inf', exact(site.now))
  redis.call('ZREMRANGEBYRANK', settled, 0, -LIMITS.settled_ids - 1)
end

local function remembers(site, name)
  local until_ms = redis.call('ZSCORE', site.base .. 'settled', name)
  return until_ms and tonumber(until_ms) > site.now
end

function Inbox.settled_job(site, id)
  remember(site, 'j' .. id)
end

function Inbox.was_job_settled(site, id)
  return remembers(site, 'j' .. id)
end

-- An earlier job of this id is over for its site: what is said from now on is about a new one.
function Inbox.begin(site, id)
  Inbox.clear_end(site, id)
  redis.call('ZREM', site.base .. 'settled', 'j' .. id)
end

-- Settles a row that is settled by naming it: an end or a requeue. A request to seal is settled
-- by sealing, a result by collecting it.
local function settle_row(site, notice_id)
  local sequence = string.match(notice_id, '^%d+$')
  local member = sequence
    and redis.call('ZRANGEBYSCORE', site.base .. 'inbox', sequence, sequence, 'LIMIT', 0, 1)[1]
  if not member then
    return false
  end
  local id = string.sub(member, 2)
  if string.sub(member, 1, 1) == 'o' then
    return Inbox.clear_end(site, id)
  end
  redis.call('ZREM', site.base .. 'inbox', member)
  local job = Job.load(site, id)
  if job then
    job.requeue = nil
    Job.save(site, job)
  end
  return true
end

function Inbox.settle(site, notice_id)
  if not settle_row(site, notice_id) then
    return remembers(site, 'n' .. notice_id)
  end
  remember(site, 'n' .. notice_id)
  return true
end

-- One row: {sequence, kind, job id, what it is derived from}; nil when its record was lost.
local function row(site, member, sequence)
  local id = string.sub(member, 2)
  local ended = string.sub(member, 1, 1) == 'o' and redis.call('HGET', site.base .. 'ends', id)
  if ended then
    return {sequence, 'job-ended', id, ended}
  end
  local job, text = Job.load(site, id)
  if not job then
    redis.call('ZREM', site.base .. 'inbox', member)
    return nil
  end
  if string.sub(member, 1, 1) == 'q' then
    return {sequence, 'job-requeued', id, text}
  end
  return {sequence, job.state == DONE and 'result-ready' or 'please-seal', id, text}
end

-- Rows above a place, in order, and whether there may be more.
function Inbox.page(site, after, limit)
  local rows = {}
  local found = redis.call('ZRANGEBYSCORE', site.base .. 'inbox', '(' .. after, '+inf',
    'WITHSCORES', 'LIMIT', 0, limit)
  for index = 1, #found, 2 do
    rows[#rows + 1] = row(site, found[index], found[index + 1])
  end
  return rows, found[#found] or false
end
