-- Sites that waste windows, and what an operator is told of them.
--
-- Touches
--   churn:<owner>  windows that a route wasted lately (JSON), forgotten after an hour of quiet
--   churned        sorted set: '<epoch ms> <windows> <owner>' -> the same instant, of each report

local Churn = {}

local function lapses_of(site, key)
  local decoded, churn = pcall(cjson.decode, redis.call('GET', key) or '')
  if not decoded or type(churn) ~= 'table' or type(churn.until_ms) ~= 'number' or churn.until_ms <= site.now then
    return {lapses = {}}
  end
  return churn
end

local function report(site, owner, count)
  local key = site.base .. 'churned'
  local at = exact(site.now)
  redis.call('ZADD', key, at, at .. ' ' .. count .. ' ' .. owner)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', exact(site.now - LIMITS.churn_report_kept_ms))
  redis.call('ZREMRANGEBYRANK', key, 0, -LIMITS.churn_reports_per_site - 1)
  redis.call('PEXPIRE', key, LIMITS.churn_report_kept_ms)
  Site.tell(site, {'churn', owner, count, LIMITS.churn_window_ms, at})
end

-- Counts one more window that a route has wasted, and reports it, once an hour at the most.
function Churn.count(site, owner)
  local key = site.base .. 'churn:' .. owner
  local churn = lapses_of(site, key)
  local lapses = {}
  for _, at in ipairs(churn.lapses) do
    if at >= site.now - LIMITS.churn_window_ms then
      lapses[#lapses + 1] = at
    end
  end
  lapses[#lapses + 1] = site.now
  local reported = churn.reported
  local quiet = not reported or reported <= site.now - LIMITS.churn_quiet_ms
  if #lapses >= LIMITS.churn_expiries and quiet then
    reported = site.now
    report(site, owner, #lapses)
  end
  local value = {lapses = lapses, reported = reported, until_ms = site.now + LIMITS.churn_quiet_ms}
  redis.call('SET', key, cjson.encode(value), 'PX', LIMITS.churn_quiet_ms)
end

-- Answers with the reports of the last day, each as it is kept.
function Churn.reports(site)
  local since = '(' .. exact(site.now - LIMITS.churn_report_kept_ms)
  return redis.call('ZRANGEBYSCORE', site.base .. 'churned', since, '+inf')
end
