//! On a directory of its own: two processes' worth of handles on one index and one store.

use std::thread;

use super::*;

#[test]
fn notes_are_found_by_their_words_and_read_once_a_version() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (one, other) = (open(directory.path())?, open(directory.path())?);
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("a"), "Every lock is a lease,")?;
    fs::write(path("b"), "and every lease has a fence.")?;

    for name in ["a", "b", "a"] {
        add(&one, &path(name))?;
    }
    let finished: u64 = thread::scope(|scope| {
        let running = [&one, &other].map(|app| scope.spawn(|| worker(app).run()));
        running.map(|run| run.join().unwrap().map(|drained| drained.finished))
    })
    .into_iter()
    .sum::<Result<_, _>>()?;
    assert_eq!(finished, 2, "the same version twice is one job");
    assert_eq!(find(&other, "LEASE")?, [path("a"), path("b")]);
    assert_eq!(find(&one, "fence")?, [path("b")]);
    Ok(())
}

#[test]
fn what_was_written_under_a_later_token_stays() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let app = open(directory.path())?;
    let stalled = app.fh.lease("note/a").acquire()?;
    let stale = stalled.token();
    stalled.release()?;
    let newer = app.fh.lease("note/a").acquire()?;

    write(&app, "a", newer.token(), &BTreeSet::from(["new".to_owned()]))?;
    let refused = write(&app, "a", stale, &BTreeSet::from(["old".to_owned()])).unwrap_err();
    assert_eq!(refused.to_string(), "a was written under a later token than 1");
    assert_eq!((find(&app, "new")?.len(), find(&app, "old")?.len()), (1, 0));
    Ok(())
}
