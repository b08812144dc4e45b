//! Notes that can be searched, without an executor. The index is in a SQLite database of the program's own, beside the store of its jobs:
//! both link one SQLite, that of the `rusqlite` that the program chose.
//!
//! ```sh
//! cargo run -p notes -- add README.md docs/*.md
//! cargo run -p notes -- work                     # as many of these at once as you like
//! cargo run -p notes -- find lease
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};

use anyhow::Context as _;
use fencehold::blocking::{Fencehold, Job, Worker};
use fencehold::{State, Token, TypedJob};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

const TABLES: &str = "
    PRAGMA journal_mode = wal;
    PRAGMA busy_timeout = 5000;
    CREATE TABLE IF NOT EXISTS note (path TEXT PRIMARY KEY, token INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS word (word TEXT, path TEXT REFERENCES note, PRIMARY KEY (word, path)) WITHOUT ROWID;";

#[derive(Clone)]
struct App {
    fh: Fencehold,
    index: Arc<Mutex<Connection>>,
}

/// The job that reads a note into the index.
#[derive(Serialize, Deserialize)]
struct Read {
    path: String,
}

impl TypedJob for Read {
    const KIND: &'static str = "read";
    /// How many words it has.
    type Result = usize;
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let app = open(Path::new("."))?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["add", ref paths @ ..] if !paths.is_empty() => paths.iter().try_for_each(|path| add(&app, path))?,
        ["work"] => {
            let drained = worker(&app).run()?;
            println!("{} notes were read", drained.finished);
        }
        ["find", word] => find(&app, word)?.iter().for_each(|path| println!("{path}")),
        _ => anyhow::bail!("usage: notes add FILE..., notes work, notes find WORD"),
    }
    app.fh.close();
    Ok(())
}

fn open(directory: &Path) -> anyhow::Result<App> {
    let fh = Fencehold::connect(&format!("file:{}?create=true", directory.join("notes-jobs").display()))?;
    let index = Connection::open(directory.join("notes.db"))?;
    index.execute_batch(TABLES)?;
    Ok(App { fh, index: Arc::new(Mutex::new(index)) })
}

/// Has a note read, once for each of its versions.
fn add(app: &App, path: &str) -> anyhow::Result<()> {
    let changed = fs::metadata(path)
        .and_then(|file| file.modified())
        .with_context(|| path.to_owned())?;
    let job = app.fh.queue("notes").typed_job(&Read { path: path.to_owned() });
    let job = job
        .unique(format!("{path} of {changed:?}"), Duration::from_secs(86_400))
        .enqueue()?;
    println!("{path}: {}", job.id());
    Ok(())
}

fn worker(app: &App) -> Worker {
    app.fh
        .worker()
        .queue("notes")
        .state(app.clone())
        .handle_typed(read)
        .until_empty()
}

/// Two versions of a note may be read at once, by two jobs. The lease keeps them apart, and its token keeps out the one that stalled.
fn read(job: Job, note: Read, State(app): State<App>) -> anyhow::Result<usize> {
    let lease = app
        .fh
        .lease(format!("note/{}", note.path))
        .task(job.id().to_string())
        .acquire()?;
    let text = fs::read_to_string(&note.path).with_context(|| note.path.clone())?;
    let words: BTreeSet<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    write(&app, &note.path, lease.token(), &words)?;
    lease.release()?;
    Ok(words.len())
}

/// Writes under a token: never over what was written under a later one.
fn write(app: &App, path: &str, token: Token, words: &BTreeSet<String>) -> anyhow::Result<()> {
    let mut index = app.index.lock().unwrap_or_else(PoisonError::into_inner);
    let transaction = index.transaction()?;
    let fence = "INSERT INTO note VALUES (?1, ?2) ON CONFLICT DO UPDATE SET token = ?2 WHERE token <= ?2";
    if transaction.execute(fence, params![path, token.as_i64()])? == 0 {
        anyhow::bail!("{path} was written under a later token than {token}");
    }
    transaction.execute("DELETE FROM word WHERE path = ?1", [path])?;
    for word in words {
        transaction.execute("INSERT INTO word VALUES (?1, ?2)", [word, path])?;
    }
    Ok(transaction.commit()?)
}

fn find(app: &App, word: &str) -> anyhow::Result<Vec<String>> {
    let index = app.index.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = index.prepare("SELECT path FROM word WHERE word = ?1 ORDER BY path")?;
    let paths = found.query_map([word.to_lowercase()], |row| row.get(0))?;
    Ok(paths.collect::<Result<_, _>>()?)
}
