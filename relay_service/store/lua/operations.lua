-- The functions that this library offers.
--
-- An operation on a site takes the site's base as its key, and as arguments the setting of the
-- clock, a name of the store that asks, the site's id ('' when only a lease names it) and what its
-- function says. It first lets time pass. Its reply is described at Site.close. The other
-- operations say their keys themselves.

local function on_site(perform)
  return function(keys, arguments)
    local site = Site.open(keys[1], arguments[1], arguments[2], arguments[3])
    if not Lapses.pass(site, {requeued = {}, ended = {}}) then
      return Site.close(site, 1, {})
    end
    return Site.close(site, 0, perform(site, unpack(arguments, 4)))
  end
end

-- Answers: {job ids put back to the queue, job ids that are gone}; the lists of a call that has to
-- be repeated are not said again by the next.
local function sweep(keys, arguments)
  local site = Site.open(keys[1], arguments[1], arguments[2], arguments[3])
  local swept = {requeued = {}, ended = {}}
  local caught_up = Lapses.pass(site, swept)
  if caught_up then
    Site.set_hint(site, Lapses.next_due(site))
    site.announced = true
  end
  return Site.close(site, caught_up and 0 or 1, {swept.requeued, swept.ended})
end

-- Answers: {next instant or false}, and lets no time pass.
local function due(keys, arguments)
  local site = Site.open(keys[1], arguments[1], arguments[2], arguments[3])
  local instant = Lapses.next_due(site)
  Site.set_hint(site, instant)
  site.announced = true
  return Site.close(site, 0, {instant or false})
end

local function offer(name, operation)
  redis.register_function{function_name = PREFIX .. name, callback = operation, flags = {'allow-oom'}}
end

-- What fills the server is refused when its memory is full; what empties it is not.
local function offer_while_there_is_memory(name, operation)
  redis.register_function(PREFIX .. name, operation)
end

offer('sweep', sweep)
offer('due', due)
offer('claim', on_site(Claiming.claim))
offer_while_there_is_memory('authorise', on_site(Holding.authorise))
offer('decline', on_site(Holding.decline))
offer('take_payload', on_site(Holding.take_payload))
offer_while_there_is_memory('complete', on_site(Holding.complete))
offer('release', on_site(Holding.release))
offer('renew', on_site(Holding.renew))
offer('acknowledge_cancels', on_site(Holding.acknowledge_cancels))
offer('held', on_site(Holding.held))
offer('holds', on_site(Holding.holds))
offer_while_there_is_memory('enqueue', on_site(Commissioning.enqueue))
offer_while_there_is_memory('seal', on_site(Commissioning.seal))
offer('cancel', on_site(Commissioning.cancel))
offer('acknowledge', on_site(Commissioning.acknowledge))
offer('notices', on_site(Commissioning.notices))
offer('job', on_site(Commissioning.job))
offer('list', on_site(Commissioning.list))
offer('oldest_queued', on_site(Commissioning.oldest_queued))
offer('churn_reports', on_site(Churn.reports))
offer('now', Commons.now)
offer('note_site', Commons.note_site)
offer('due_sites', Commons.due_sites)
offer('note_runner', Commons.note_runner)
offer('seen', Commons.seen)
offer('presence', Commons.presence)
offer('everyone', Commons.everyone)
offer('use_nonce', Commons.use_nonce)
offer('open_session', Relays.open_session)
offer_while_there_is_memory('share_projection', Relays.share_projection)
offer('shared_projection', Relays.shared_projection)
offer_while_there_is_memory('begin_pairing', Pairings.begin)
offer('find_pairing', Pairings.find)
offer('decide_pairing', Pairings.decide)
offer('pending_pairings', Pairings.pending)
