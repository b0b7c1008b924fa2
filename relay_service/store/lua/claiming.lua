-- Granting the queued jobs of one site. Touches what lanes, leases and steps touch.

local Claiming = {}

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do
    set[item] = true
  end
  return set
end

local function read(...)
  local runner, owner, device, key_id, lease_ms, name, may_repeat, holds_back, turn, elsewhere, owners,
    kinds, ids = ...
  return {
    runner_id = runner,
    owner = owner,
    device = device,
    key_id = key_id,
    lease_ms = tonumber(lease_ms),
    request_id = name ~= '' and name or nil,
    may_repeat = may_repeat == '1',
    holds_back = holds_back == '1',
    before_turn = tonumber(turn),
    held_elsewhere = tonumber(elsewhere),
    owners = cjson.decode(owners),
    kinds = set_of(cjson.decode(kinds)),
    lease_ids = cjson.decode(ids),
  }
end

local function grant(site, job, lane, request, lease_id)
  local before = Steps.before(job, lane)
  job.claim = {
    runner_id = request.runner_id,
    owner = request.owner,
    device = request.device,
    key_id = request.key_id,
    lease_id = lease_id,
    lease_expires_at_ms = site.now + request.lease_ms,
    number = exact(Site.next(site)),
    request = request.request_id,
  }
  job.sticky_until_ms = nil
  if request.holds_back then
    job.state = AUTHORISING
    job.claim.lease_expires_at_ms = site.now + LIMITS.authorisation_ms
    return Steps.take(site, before, job, {})
  end
  job.state = AWAITING
  job.awaiting_until_ms = site.now + LIMITS.awaiting_payload_ms
  return Steps.take(site, before, job, {notice = {kind = 'please-seal'}})
end

-- Goes round the routes, the one longest unserved first, and grants as many jobs as there is room
-- for. `before_turn`, when given, is the turn of a route elsewhere: after the first job, one is
-- granted only when its route comes before that. Answers with the texts of the jobs and the turn of
-- the next route that could be served, false when none could or when there is no room.
local function go_round(site, request, room)
  local texts, queue = {}, Lanes.turns(site, request.owners)
  local at = 1
  while queue[at] do
    local turn, owner = queue[at][1], queue[at][2]
    local job, lane
    if not Lanes.is_full(site, owner) then
      job, lane = Lanes.first(site, owner, request)
    end
    if job then
      local is_next = #texts == 0 or not request.before_turn or turn < request.before_turn
      if #texts >= room or not is_next then
        return texts, exact(turn)
      end
      queue[#queue + 1] = {Lanes.to_the_end(site, owner), owner}
      texts[#texts + 1] = grant(site, job, lane, request, request.lease_ids[#texts + 1])
      if #texts >= room then
        return texts, false
      end
    end
    at = at + 1
  end
  return texts, false
end

-- Arguments: who claims (runner, owner, device, key id), how long the leases are (ms), the name of
-- the claim or '', '1' when a name that was answered is answered again, '1' when grants are held
-- back, the turn of a site that waits or '', jobs held at other sites; then JSON lists: owners, kinds, lease ids (one a job at
-- the most; none only asks whose turn it is).
-- Answers: {site id, texts of an earlier answer, texts granted, jobs held before, turn or false,
-- entries looked at}.
function Claiming.claim(site, ...)
  local request = read(...)
  local held = Leases.held_count(site, request.runner_id)
  local answered = {}
  if request.may_repeat then
    answered = Leases.answered(site, request.runner_id, request.request_id)
  end
  if #answered > 0 then
    return {site.id, answered, {}, held, false, 0}
  end
  local most = LIMITS.leases_per_device - request.held_elsewhere
  if held >= most then
    -- Records that were lost are still counted; the rare full device is counted exactly.
    held = #Leases.held(site, request.runner_id)
  end
  local room = math.min(#request.lease_ids, most - held)
  if room <= 0 and #request.lease_ids > 0 then
    return {site.id, {}, {}, held, false, 0}
  end
  local granted, turn = go_round(site, request, room)
  return {site.id, {}, granted, held, turn, site.inspected}
end
