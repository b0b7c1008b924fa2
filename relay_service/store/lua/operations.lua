-- The functions that this library offers.
--
-- An operation on a site takes the site's base as its key, and as arguments the setting of the
-- clock, the site's id ('' when only a lease names it) and what its function says. It first lets
-- time pass. Its reply is described at Site.close. The other operations say their keys themselves.

local function on_site(perform)
  return function(keys, arguments)
    local site = Site.open(keys[1], arguments[1], arguments[2])
    if not Lapses.pass(site, {requeued = {}, ended = {}}) then
      return Site.close(site, 1, {})
    end
    return Site.close(site, 0, perform(site, unpack(arguments, 3)))
  end
end

-- Answers: {job ids put back to the queue, job ids that are gone, next instant or false}; the
-- lists of a call that has to be repeated are not said again by the next.
local function sweep(keys, arguments)
  local site = Site.open(keys[1], arguments[1], arguments[2])
  local swept = {requeued = {}, ended = {}}
  local caught_up = Lapses.pass(site, swept)
  local due = caught_up and Lapses.next_due(site) or nil
  if caught_up then
    Site.set_hint(site, due)
    site.announced = true
  end
  return Site.close(site, caught_up and 0 or 1, {swept.requeued, swept.ended, due or false})
end

local operations = {
  sweep = sweep,
  claim = on_site(Claiming.claim),
  take_payload = on_site(Holding.take_payload),
  complete = on_site(Holding.complete),
  release = on_site(Holding.release),
  renew = on_site(Holding.renew),
  acknowledge_cancels = on_site(Holding.acknowledge_cancels),
  held = on_site(Holding.held),
  holds = on_site(Holding.holds),
  enqueue = on_site(Commissioning.enqueue),
  seal = on_site(Commissioning.seal),
  cancel = on_site(Commissioning.cancel),
  acknowledge = on_site(Commissioning.acknowledge),
  notices = on_site(Commissioning.notices),
  job = on_site(Commissioning.job),
  list = on_site(Commissioning.list),
  note_site = Commons.note_site,
  due_sites = Commons.due_sites,
  note_runner = Commons.note_runner,
  runner_sites = Commons.runner_sites,
  seen = Commons.seen,
  presence = Commons.presence,
  use_nonce = Commons.use_nonce,
}

for name, operation in pairs(operations) do
  redis.register_function(PREFIX .. name, operation)
end
