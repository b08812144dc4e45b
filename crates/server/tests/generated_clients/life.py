"""The life of a lease and of a job, by a client that was generated from the document.

Run with the server's URL and the folder that the client is in. Every answer is asked for by its type: a union that the
generator could not make, or an answer that is not what the document says, ends the program.
"""

import base64
import sys

sys.path.insert(0, sys.argv[2])

from fencehold_client import Client
from fencehold_client import models as m
from fencehold_client.api.effects import write_effect
from fencehold_client.api.events import list_events
from fencehold_client.api.jobs import claim_jobs, enqueue_job, get_job, renew_attempt, report_attempt
from fencehold_client.api.leases import acquire_lease, get_lease, release_lease, renew_lease

FIRST_HOLD, SECOND_HOLD = "0" * 31 + "1", "0" * 31 + "2"
client = Client(base_url=sys.argv[1])


def send(endpoint, expected, **arguments):
    answer = endpoint.sync(client=client, **arguments)
    assert isinstance(answer, expected), f"{endpoint.__name__}: {answer!r} is no {expected.__name__}"
    return answer


def acquire(hold_id, owner):
    return m.AcquireLeaseRequest(key="reports/daily", hold_id=hold_id, owner=owner, ttl_ms=30_000)


def lease_life():
    lease = send(acquire_lease, m.AcquiredLease, body=acquire(FIRST_HOLD, "one"))
    refused = send(acquire_lease, m.Problem, body=acquire(SECOND_HOLD, "two"))
    assert (refused.status, refused.type_, refused.owner) == (409, "urn:fencehold:held", "one"), refused
    hold = m.HoldRef(key="reports/daily", token=lease.token, hold_id=FIRST_HOLD)
    assert send(renew_lease, m.RenewedLease, body=hold).token == lease.token
    assert send(get_lease, m.LeaseView, key="reports/daily").holder.owner == "one"
    send(release_lease, m.ReleasedLease, body=hold)
    stale = send(renew_lease, m.Problem, body=hold)
    assert stale.status == 409, stale
    events = send(list_events, m.EventPage, prefix="reports/").events
    assert [type(event) for event in events[:2]] == [m.LeaseAcquiredEvent, m.LeaseEndedEvent], events
    assert events[1].outcome == m.LeaseOutcome.RELEASED, events[1]


def claim(hold_id):
    queues = [m.QueueWeight(queue="emails")]
    body = m.ClaimJobsRequest(queues=queues, hold_id=hold_id, owner="one", ttl_ms=30_000)
    [job] = send(claim_jobs, m.ClaimedJobs, body=body).jobs
    return job


def report(job, hold_id, said):
    body = m.AttemptReport(job_id=job.id, token=job.token, hold_id=hold_id, report=said)
    return send(report_attempt, m.ReportedAttempt, body=body)


def job_life():
    new = m.NewJob(queue="emails", kind="send", payload={"to": "a@example.org"})
    job_id = send(enqueue_job, m.EnqueuedJob, body=new).job_id
    assert send(get_job, m.JobDetail, job_id=job_id).state == m.JobState.QUEUED

    first = claim(FIRST_HOLD)
    assert first.id == job_id and first.payload == {"to": "a@example.org"}, first
    attempt = m.AttemptRef(job_id=job_id, token=first.token, hold_id=FIRST_HOLD)
    assert not send(renew_attempt, m.RenewedAttempt, body=attempt).cancel_requested
    checkpoint = base64.b64encode(b"half").decode()
    report(first, FIRST_HOLD, m.ReportCheckpoint(type_="checkpoint", checkpoint=checkpoint))
    report(first, FIRST_HOLD, m.ReportProgress(type_="progress", progress={"percent": 50}))
    entry = m.LedgerRecord(type_="record", effect="charge", value={"charge": "ch_7"})
    body = m.AttemptLedgerEntry(job_id=job_id, token=first.token, hold_id=FIRST_HOLD, entry=entry)
    send(write_effect, m.LedgerRecorded, body=body)
    failed = report(first, FIRST_HOLD, m.ReportFail(type_="fail", error="no route to host", retry_in_ms=0))
    assert failed.state == m.JobState.QUEUED, failed

    second = claim(SECOND_HOLD)
    assert second.token > first.token and second.checkpoint == checkpoint, second
    assert [effect.name for effect in second.effects] == ["charge"], second.effects
    done = report(second, SECOND_HOLD, m.ReportComplete(type_="complete", result={"sent": True}))
    assert done.state == m.JobState.COMPLETED, done

    job = send(get_job, m.JobDetail, job_id=job_id)
    outcomes = [attempt.outcome for attempt in job.attempts]
    assert outcomes == [m.AttemptOutcome.FAILED, m.AttemptOutcome.COMPLETED], outcomes
    assert job.result == {"sent": True}, job


lease_life()
job_life()
print("a lease and a job have lived")
