// The life of a lease and of a job, by a client that was generated from the document. `tsc` checks every field and every
// union against the generated types before it runs.
import assert from "node:assert/strict";
import * as api from "./client/index";
import { client } from "./client/client.gen";

const FIRST_HOLD = "0".repeat(31) + "1";
const SECOND_HOLD = "0".repeat(31) + "2";
client.setConfig({ baseUrl: process.argv[2], throwOnError: false });

/** The answer, or the end of the program with the problem. */
function ok<T>({ data, error }: { data?: T; error?: unknown }): NonNullable<T> {
  assert.ok(data != null, JSON.stringify(error));
  return data;
}

function acquire(hold_id: string, owner: string): api.AcquireLeaseRequest {
  return { key: "reports/daily", hold_id, owner, ttl_ms: 30_000 };
}

async function leaseLife(): Promise<void> {
  const lease = ok(await api.acquireLease({ body: acquire(FIRST_HOLD, "one") }));
  const refused = await api.acquireLease({ body: acquire(SECOND_HOLD, "two") });
  assert.equal(refused.response?.status, 409);
  assert.equal(refused.error?.type, "urn:fencehold:held");
  assert.equal(refused.error?.owner, "one");
  const hold: api.HoldRef = { key: "reports/daily", token: lease.token, hold_id: FIRST_HOLD };
  assert.equal(ok(await api.renewLease({ body: hold })).token, lease.token);
  assert.equal(ok(await api.getLease({ query: { key: "reports/daily" } })).holder?.owner, "one");
  ok(await api.releaseLease({ body: hold }));
  assert.equal((await api.renewLease({ body: hold })).response?.status, 409);
  const { events } = ok(await api.listEvents({ query: { prefix: "reports/" } }));
  const ended = events[1];
  assert.equal(events[0]?.type, "lease_acquired");
  assert.ok(ended?.type === "lease_ended" && "outcome" in ended && ended.outcome === "released");
}

async function claim(hold_id: string): Promise<api.ClaimedJob> {
  const body: api.ClaimJobsRequest = { queues: [{ queue: "emails" }], hold_id, owner: "one", ttl_ms: 30_000 };
  const { jobs } = ok(await api.claimJobs({ body }));
  assert.equal(jobs.length, 1);
  return jobs[0]!;
}

async function report(attempt: api.AttemptRef, report: api.Report): Promise<api.ReportedAttempt> {
  const body: api.AttemptReport = { ...attempt, report };
  return ok(await api.reportAttempt({ body }));
}

async function jobLife(): Promise<void> {
  const body: api.NewJob = { queue: "emails", kind: "send", payload: { to: "a@example.org" } };
  const { job_id } = ok(await api.enqueueJob({ body }));
  assert.equal(ok(await api.getJob({ path: { job_id } })).state, "queued");

  const first = await claim(FIRST_HOLD);
  assert.deepEqual([first.id, first.payload], [job_id, { to: "a@example.org" }]);
  const attempt: api.AttemptRef = { job_id, token: first.token, hold_id: FIRST_HOLD };
  assert.equal(ok(await api.renewAttempt({ body: attempt })).cancel_requested, false);
  const checkpoint = Buffer.from("half").toString("base64");
  await report(attempt, { type: "checkpoint", checkpoint });
  await report(attempt, { type: "progress", progress: { percent: 50 } });
  const entry: api.LedgerRecord = { type: "record", effect: "charge", value: { charge: "ch_7" } };
  const written = ok(await api.writeEffect({ body: { ...attempt, entry } }));
  assert.equal(written.type, "recorded");
  const failed = await report(attempt, { type: "fail", error: "no route to host", retry_in_ms: 0 });
  assert.equal(failed.state, "queued");

  const second = await claim(SECOND_HOLD);
  assert.ok(second.token > first.token);
  assert.equal(second.checkpoint, checkpoint);
  assert.deepEqual(second.effects?.map((effect) => effect.name), ["charge"]);
  const again: api.AttemptRef = { job_id, token: second.token, hold_id: SECOND_HOLD };
  assert.equal((await report(again, { type: "complete", result: { sent: true } })).state, "completed");

  const job = ok(await api.getJob({ path: { job_id } }));
  assert.deepEqual(job.attempts.map(({ outcome }) => outcome), ["failed", "completed"]);
  assert.deepEqual(job.result, { sent: true });
}

leaseLife()
  .then(jobLife)
  .then(() => console.log("a lease and a job have lived"));
