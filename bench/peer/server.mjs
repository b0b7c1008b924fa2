// Serves the published relay over HTTP/1.1 on a loopback port: node server.mjs SETUP.json LEASES.json
//
// SETUP.json holds the relay's fixture, and jobs that are to be running from the start: {fixture, running},
// each of the latter {runnerId, siteId, stub}. Their leases are written to LEASES.json, by runner.
//
// The package ships a fetch handler and no server. This is the thinnest one that keeps to its published
// contract (a real Request in, a real Response out), so that what is measured is the relay and not us.
// Prints one line, {"port": N}, once it listens. Ends when its standard input does, so that it cannot
// outlive the benchmark that started it.
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { Relay } from "@byollm/relay";

const [setupPath, leasesPath] = process.argv.slice(2);
const { fixture, running } = JSON.parse(readFileSync(setupPath, "utf8"));
const relay = new Relay({ fixture });

// Takes a job to where its device runs it, through the store that the package exposes: over HTTP it would
// take the peer a minute for thousands of devices, since every claim walks all jobs.
async function run({ runnerId, siteId, stub }) {
  const { owner, device } = relay.projection.deviceFor(runnerId);
  const routes = relay.projection.routesFor(owner);
  await relay.state.enqueue({ id: stub.id, siteId, stub });
  const claim = { runnerId, owner, device, routes, kinds: new Set([stub.kind]), max: 1, leaseMs: 60_000 };
  const [{ lease }] = await relay.state.claim(claim);
  await relay.state.seal({ jobId: stub.id, siteId, envelope: { ciphertext: "AAAA" } });
  await relay.state.takePayload({ jobId: stub.id, runnerId, leaseId: lease.id });
  return [runnerId, { jobId: stub.id, leaseId: lease.id }];
}

async function bodyOf(incoming) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  return chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
}

async function answer(incoming, outgoing) {
  const init = { method: incoming.method, headers: incoming.headers };
  if (incoming.method === "POST") init.body = await bodyOf(incoming);
  const response = await relay.handle(new Request(`http://127.0.0.1${incoming.url}`, init));
  const body = Buffer.from(await response.arrayBuffer());
  outgoing.writeHead(response.status, {
    "content-type": response.headers.get("content-type"),
    "content-length": body.length,
  });
  outgoing.end(body);
}

const server = createServer((incoming, outgoing) => {
  answer(incoming, outgoing).catch((error) => {
    console.error(error);
    outgoing.writeHead(500, { "content-length": 0 }).end();
  });
});

// Node drops an idle connection after 5 s. Devices call every 10 s: keeping theirs open spares the peer a
// new connection for each heartbeat.
server.keepAliveTimeout = 120_000;
const leases = [];
for (const job of running) leases.push(await run(job));
writeFileSync(leasesPath, JSON.stringify(Object.fromEntries(leases)));

server.listen(0, "127.0.0.1", 4096, () => {
  process.stdout.write(`${JSON.stringify({ port: server.address().port })}\n`);
});

const stop = () => process.exit(0);
process.stdin.resume().on("end", stop).on("error", stop);
process.on("SIGTERM", stop);
