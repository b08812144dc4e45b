//! Requests and answers that are late, lost or doubled.

use super::prelude::*;

pub(super) const R07: Race = Race {
    id: "R07",
    name: "complete after expiry, not taken since",
    promise: "P7 Unknown is said",
    schedule: "A's claim expires; no worker takes the job; A completes it",
    must_hold: "accepted as late, and no worker does the work again",
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let work = a.claims()?;
        script.claim_runs_out(&work)?;
        let told = a.completes(&work, "by A");
        script.must(
            told == JobReply::Stands { state: JobState::Completed, late: true },
            "work that was done is done, and on record as late",
        )?;
        script.must(b.finds_nothing()?, "no worker does it again")?;
        script.must(script.job()?.result.as_deref() == Some("by A"), "its result is kept")
    },
    ..JOB_RACE
};

pub(super) const R13: Race = Race {
    id: "R13",
    name: "lost answer of acquire",
    promise: "P7 Unknown is said",
    schedule: "A's request is lost; sent again it is granted, and the answer is lost; time passes; A sends it \
               again; later once more",
    must_hold: "the same lease with the time that remains; after its end: ended, never a new grant",
    naive: Some("A waits for itself"),
    needs: &[MovesTime],
    script: |script| {
        let a = script.actor("A");
        let wish = a.wish();
        a.next_meets("acquire", MessageFate::Lost);
        a.asks(wish.clone());
        script.must(script.lease().holder.is_none(), "a request that never arrived does nothing")?;
        a.next_meets("acquire", MessageFate::AnswerLost);
        a.asks(AcquireTerms { hold_age_ms: 1, ..wish.clone() });
        let (waited_ms, ttl_ms) = (10_000.min(script.ttl_ms() / 3), script.ttl_ms());
        script.passes(waited_ms);
        let again = AcquireTerms { hold_age_ms: waited_ms, ..wish.clone() };
        let LeaseReply::Granted(lease) = a.asks(again) else {
            return script.broken("the same hold id gets its own lease");
        };
        script.must(lease.resumed, "the lease is the one that was granted")?;
        script.must(lease.remaining_ms <= ttl_ms - waited_ms, "it lasts for the time that remains")?;
        script.expires(&lease);
        let late = AcquireTerms { hold_age_ms: ttl_ms, ..wish };
        script.must(
            matches!(a.asks(late), LeaseReply::Ended { .. }),
            "a hold id that has ended is never granted again",
        )
    },
    ..LEASE_RACE
};

pub(super) const R13_JOB: Race = Race {
    id: "R13-job",
    name: "lost answer of a claim",
    promise: "P7 Unknown is said",
    schedule: "A's claim is granted; the answer is lost; A asks again with the same hold id",
    must_hold: "the same job under the same token, and B gets nothing",
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let wish = a.wish();
        a.next_meets("claim", MessageFate::AnswerLost);
        script.must(a.asks(&wish)?.is_none(), "its answer is lost")?;
        script.must(b.finds_nothing()?, "the job is not handed out twice")?;
        let Some(work) = a.asks(&wish)? else {
            return script.broken("the same hold id gets the job that it has");
        };
        let again = a.asks(&wish)?.map(|work| work.token);
        script.must(again == Some(work.token), "under the same token each time")?;
        script.must(script.job()?.worker.as_deref() == Some("A"), "A works on it")
    },
    ..JOB_RACE
};

pub(super) const R14: Race = Race {
    id: "R14",
    name: "grant without a caller",
    promise: "P10 Nothing to clean",
    schedule: "A waits in line and looks away; the holder releases, and the grant to A commits; A goes",
    must_hold: "the key is free at once, and its next token is larger than that of the lost grant",
    naive: Some("the key stays with one who is gone"),
    needs: &[NoticesLeaving],
    script: |script| {
        let (holder, a, b) = (script.actor("H"), script.actor("A"), script.actor("B"));
        let lease = holder.acquires()?;
        let waiting = a.waits(script.ttl_ms())?;
        waiting.is_not_looked_at();
        script.must(holder.releases(&lease).is_released(), "the holder can give it back")?;
        script.comes("the key goes to who waits", || script.is_held_by("A"))?;
        script.trace.note("A", "is granted it, and does not see that");
        waiting.loses_its_sender()?;
        script.comes("a grant whose caller has gone is given back", || script.lease().holder.is_none())?;
        script.trace.note("store", "gives it up for A");
        let new = b.acquires()?;
        script.must(new.token > lease.token + 1, "the token of the lost grant is not given again")
    },
    ..LEASE_RACE
};

pub(super) const R15: Race = Race {
    id: "R15",
    name: "complete twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and one effect",
    naive: Some("the effect runs twice"),
    script: |script| {
        let a = script.actor("A");
        let lease = a.acquires()?;
        a.next_meets("complete", MessageFate::Doubled);
        script.must(a.completes(&lease, "done").is_completed(), "the same answer both times")?;
        script.must(script.resource.look().effects == 1, "one effect")?;
        script.must(a.releases(&lease).is_released(), "the holder can give it back")?;
        script.must(a.releases(&lease).is_released(), "the same release gets the same answer")
    },
    ..LEASE_RACE
};

pub(super) const R15_JOB: Race = Race {
    id: "R15-job",
    name: "complete a job twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and the job is completed once",
    naive: Some("what follows a completion follows twice"),
    script: |script| {
        let a = script.worker("A");
        let work = a.claims()?;
        a.next_meets("complete", MessageFate::Doubled);
        script
            .must(a.completes(&work, "done").leaves_it(JobState::Completed), "the same answer both times")?;
        script.must(script.job()?.completions == 1, "completed once")
    },
    ..JOB_RACE
};

pub(super) const R16: Race = Race {
    id: "R16",
    name: "complete, then fail",
    promise: "P7 Unknown is said",
    schedule: "A's completion arrives; its answer is lost; A reports a failure",
    must_hold: "the first terminal state stands",
    naive: Some("the job is tried again"),
    script: |script| {
        let (a, b) = (script.worker("A"), script.worker("B"));
        let work = a.claims()?;
        a.next_meets("complete", MessageFate::AnswerLost);
        a.completes(&work, "by A");
        let told = a.does(JobCall::Fail(work));
        script.must(script.job()?.state == JobState::Completed, "what was completed stays completed")?;
        script.must(
            told == JobReply::Finished { state: JobState::Completed },
            "A learns that it is completed",
        )?;
        script.must(b.finds_nothing()?, "no worker does it again")
    },
    ..JOB_RACE
};

pub(super) const R19: Race = Race {
    id: "R19",
    name: "wait, then grant",
    promise: "P7 Unknown is said",
    schedule: "A waits in line; A's own time is up; the holder releases",
    must_hold: "A is not told 'granted', and the key is free",
    naive: Some("A is granted a key that it no longer waits for"),
    needs: &[MovesTime],
    script: |script| {
        let (holder, a, b) = (script.actor("H"), script.actor("A"), script.actor("B"));
        let lease = holder.acquires()?;
        let wait_ms = script.ttl_ms() / 3;
        let waiting = a.waits(wait_ms)?;
        script.passes(wait_ms);
        script.must(holder.releases(&lease).is_released(), "the holder can give it back")?;
        let told = waiting.told()?;
        script.must(!told.is_granted(), "a caller whose time is up never gets 'granted'")?;
        b.acquires().map(drop)
    },
    ..LEASE_RACE
};
