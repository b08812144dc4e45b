//! What the index of the documentation leads to: every page of it within two links, and the words with which users of other
//! systems come.
//!
//! A word is found where a reader looks for it: in a heading, or in the first cell of a table's row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::markdown;

pub(crate) const INDEX: &str = "docs/README.md";
const LINKS_MAX: usize = 2;

/// Words of other systems, and of what people build by hand, apart by commas.
const WORDS: &str = "
    abandon, ack, advisory locks, agent, apalis, at-least-once, audit trail, backoff, barrier, blocking acquisition,
    burn rate, capacity planning, celery, checkpoint, circuit breaker, claim, clock skew, compare-and-swap,
    compensating transaction, consensus, consul, contention, cron overlap guard, curator,
    database-native lock, dead letter, deduplication window, distributed tracing, draining, drift, epoch,
    etag, etcd, event-driven acquisition, exactly-once, expired against released, fencing token, flock,
    force-release, generation, graceful preemption, graceful shutdown, graphile_worker, hard timeout, heartbeat,
    idempotency key, jitter, kubernetes leases, leader election, lease keeper, ledger, lifecycle hook,
    mass expiry, nack, not-owner, ntp, optimistic concurrency, outbox, overflow of tokens, owner,
    ownership transfer, poison message, polling, precondition, quorum, reaper, reclaim, reconciliation,
    recovery scan, redlock, renewal and fencing, renewal loop, requeue, saga, semaphore, sequence number,
    session, side effects, sidekiq, split brain, sqlxmq, sqs, stale write, structured trace, submit, supervisor,
    tenant, thundering herd, ttl formula, two-phase commit, visibility timeout, worker id guard, write gate,
    zookeeper";

/// What the index does not lead to. The pages are all Markdown files, by their path.
pub(crate) fn faults(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let near = within_reach(pages);
    let documentation = pages.keys().filter(|page| page.starts_with("docs"));
    let far = documentation.filter(|page| !near.contains(page.as_path()));
    let far = far.map(|page| format!("{}: more than {LINKS_MAX} links from {INDEX}", page.display()));
    // A decision names many words, and explains none to a newcomer.
    let explaining = near.iter().filter(|page| !page.starts_with("docs/decisions"));
    let entries: Vec<String> = explaining
        .filter_map(|page| pages.get(*page))
        .flat_map(|text| entries(text))
        .collect();
    let words = WORDS.split(',').map(str::trim);
    let missing = words.filter(|word| !entries.iter().any(|entry| has_word(entry, word)));
    let missing = missing
        .map(|word| format!("{INDEX}: no page within {LINKS_MAX} links of it has an entry for `{word}`"));
    far.chain(missing).collect()
}

/// The pages that can be reached from the index by so few links, itself included.
fn within_reach(pages: &BTreeMap<PathBuf, String>) -> BTreeSet<&Path> {
    let mut near = BTreeSet::new();
    let mut newest: BTreeSet<PathBuf> = BTreeSet::from([INDEX.into()]);
    for _ in 0..=LINKS_MAX {
        let mut next = BTreeSet::new();
        for (page, text) in newest.iter().filter_map(|page| pages.get_key_value(page)) {
            if near.insert(page.as_path()) {
                let targets = markdown::links(text).into_iter().map(|link| link.target);
                next.extend(targets.filter_map(|target| markdown::inside(page, target.split('#').next()?)));
            }
        }
        newest = next;
    }
    near
}

/// Headings, and the first cells of the rows of tables, in small letters.
fn entries(text: &str) -> Vec<String> {
    let entry = |line: &str| {
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        cell.or_else(|| markdown::heading(line)).map(str::to_lowercase)
    };
    markdown::prose(text).filter_map(|(_, line)| entry(line)).collect()
}

/// Whether the words stand there, whole.
fn has_word(entry: &str, words: &str) -> bool {
    let apart = |neighbour: Option<char>| neighbour.is_none_or(|c| !c.is_alphanumeric() && c != '-');
    entry.match_indices(words).any(|(at, _)| {
        apart(entry[..at].chars().next_back()) && apart(entry[at + words.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        texts
            .iter()
            .map(|(page, text)| (PathBuf::from(page), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn a_page_that_is_three_links_away_is_too_far() {
        let chain = pages(&[
            (INDEX, "[one](one.md#part)"),
            ("docs/one.md", "[two](deep/two.md)"),
            ("docs/deep/two.md", "[three](../three.md) [out](../../README.md)"),
            ("docs/three.md", "# Three"),
            ("README.md", "not a page of the documentation"),
        ]);
        let near: Vec<_> = within_reach(&chain).into_iter().map(Path::to_path_buf).collect();
        assert_eq!(near, ["docs/README.md", "docs/deep/two.md", "docs/one.md"].map(PathBuf::from));
        let far: Vec<_> = faults(&chain).into_iter().filter(|fault| fault.contains("more than")).collect();
        assert_eq!(far, ["docs/three.md: more than 2 links from docs/README.md"]);
    }

    #[test]
    fn a_word_needs_an_entry_of_its_own_on_a_page_within_reach() {
        let missing =
            |texts: &[(&str, &str)]| faults(&pages(texts)).iter().any(|fault| fault.contains("`saga`"));
        assert!(!missing(&[(INDEX, "## Saga")]));
        assert!(!missing(&[(INDEX, "[x](x.md)"), ("docs/x.md", "| outbox, saga | ours |")]));
        assert!(missing(&[(
            INDEX,
            "| ours | saga |\nA saga.\n```\n# saga\n```\n## Sagas, a saga-like thing"
        )]));
        assert!(missing(&[(INDEX, ""), ("docs/x.md", "# Saga")]), "no link leads there");
        assert!(missing(&[(INDEX, "[x](decisions/x.md)"), ("docs/decisions/x.md", "# Saga")]));
    }
}
