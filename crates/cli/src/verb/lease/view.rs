//! `fencehold lease ls`, `get` and `watch`: who holds what, and what happens to it.

use fencehold_contract::{LeasePage, LeaseView, ListLeasesRequest};
use fencehold_core::lease::YieldRequest;
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Key, Owner, Task, Token};

use crate::context::{Context, pages};
use crate::duration::{show_exact_ms, show_ms};
use crate::follow::{self, EventFilter};
use crate::output::Format;
use crate::show::{Cell, Colour, Style, Table, facts, or_dash, utc};
use crate::verb::VerbResult;
use crate::verb::lease::contention;

/// List leases: who holds what, for how long
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold lease ls
fencehold lease ls --prefix reports/ --include-free
fencehold lease ls --task run-42 -o jsonl
fencehold lease ls --task-prefix run-42
fencehold lease ls --contended")]
pub(crate) struct LsArgs {
    /// Only keys that start with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only what this owner holds
    #[arg(long)]
    owner: Option<Owner>,
    /// Only what is held for this task
    #[arg(long)]
    task: Option<Task>,
    /// Only what is held for this task and those below it: run-42 covers run-42/a
    #[arg(long, value_name = "TASK")]
    task_prefix: Option<Task>,
    /// List free keys too, with how their last lease ended
    #[arg(long)]
    include_free: bool,
    /// List contended keys: how often refused, to whom last, the longest line
    #[arg(long, conflicts_with_all = ["owner", "task", "task_prefix", "include_free"])]
    contended: bool,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let LsArgs { prefix, owner, task, task_prefix, include_free, contended } = self;
        if contended {
            return contention::list(context, prefix).await;
        }
        let (cursor, limit) = (None, PAGE_MAX);
        let wanted = ListLeasesRequest { prefix, owner, task, task_prefix, include_free, cursor, limit };
        let mut leases = Vec::new();
        context
            .look(async |store| {
                pages(async |cursor| {
                    let request = ListLeasesRequest { cursor, ..wanted.clone() };
                    let page = store.explained(store.leases.list(&store.call, request)).await?;
                    if context.output.format == Format::Jsonl {
                        // As they come: there may be millions.
                        page.leases.iter().try_for_each(|lease| context.output.line(lease))?;
                    } else {
                        leases.extend(page.leases);
                    }
                    Ok(page.next_cursor)
                })
                .await
            })
            .await?;
        leases.sort_by(|one: &LeaseView, other| one.key.cmp(&other.key));
        let page = LeasePage { leases, next_cursor: None };
        context.output.list(&page, &page.leases, "no leases", table)
    }
}

fn table(leases: &[LeaseView]) -> Table {
    let header = ["KEY", "TOKEN", "OWNER", "TASK", "AGE", "LEFT", "WAITING", "STATE"];
    Table::of(header, leases, |lease| {
        let holder = lease.holder.as_ref();
        [
            lease.key.as_str().into(),
            lease.token.into(),
            or_dash(holder.map(|holder| holder.owner.as_str())),
            or_dash(holder.and_then(|holder| holder.task.as_ref())),
            or_dash(holder.map(|holder| show_ms(holder.age_ms))),
            or_dash(holder.map(|holder| show_ms(holder.remaining_ms))),
            lease.waiter_count.into(),
            state(lease),
        ]
    })
}

fn state(lease: &LeaseView) -> Cell {
    match (&lease.holder, lease.endings.last()) {
        (Some(holder), _) if holder.yield_request.is_some() => {
            Cell::from("asked to yield").in_colour(Colour::Warning)
        }
        (Some(_), _) => Cell::from("held").in_colour(Colour::Good),
        (None, Some(ending)) => Cell::from(format!("free ({})", ending.outcome)).in_colour(Colour::Faint),
        (None, None) => Cell::from("free").in_colour(Colour::Faint),
    }
}

/// Show a key: its holder, its token, and how its last leases ended
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold lease get reports/daily
fencehold lease get reports/daily -o json | jq .holder.owner")]
pub(crate) struct GetArgs {
    /// The key
    #[arg(value_name = "KEY")]
    key: Key,
}

impl GetArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let key = self.key;
        let lease = context
            .look(async |store| store.explained(store.leases.get(&store.call, key.clone())).await)
            .await?;
        // A key that nothing is kept of is free, and no token of it was given.
        let never_held = lease.is_none();
        let lease = lease.unwrap_or(LeaseView {
            key,
            token: Token::NONE,
            holder: None,
            waiter_count: 0,
            endings: Vec::new(),
        });
        context.output.one(&lease, |style| {
            if never_held {
                let state = ("state", "free: never held, or forgotten".to_owned());
                return facts(style, [("key", lease.key.to_string()), state]);
            }
            details(&lease, style) + &history(&lease).below(style)
        })
    }
}

/// What is known of a key now, line by line.
pub(crate) fn details(lease: &LeaseView, style: Style) -> String {
    let mut lines = vec![("key", lease.key.to_string())];
    match &lease.holder {
        None => {
            lines.push(("state", "free".to_owned()));
            lines.push(("last token", lease.token.to_string()));
        }
        Some(holder) => {
            lines.push(("state", "held".to_owned()));
            lines.push(("token", lease.token.to_string()));
            lines.push(("owner", holder.owner.to_string()));
            lines.extend(holder.task.as_ref().map(|task| ("task", task.to_string())));
            let since = utc(holder.acquired_at_ms);
            lines.push(("held for", format!("{}, since {since}", show_ms(holder.age_ms))));
            lines.push(("ttl", show_exact_ms(holder.ttl_ms)));
            lines.extend(holder.renewed_ago_ms.map(|ms| ("renewed", format!("{} ago", show_ms(ms)))));
            lines.push(("left", format!("{} unless it is renewed", show_ms(holder.remaining_ms))));
            lines.extend(holder.max_age_ms.map(|ms| ("max age", show_exact_ms(ms))));
            lines.extend((holder.priority != 0).then(|| ("priority", holder.priority.to_string())));
            lines.extend(holder.yield_request.as_ref().map(|request| {
                let YieldRequest { contender, priority, yield_in_ms, .. } = request;
                let within = show_ms(*yield_in_ms);
                ("must yield", format!("to {contender} (priority {priority}), within {within}"))
            }));
        }
    }
    lines.push(("waiting", lease.waiter_count.to_string()));
    facts(style, lines)
}

/// How the last holds ended, newest first.
pub(crate) fn history(lease: &LeaseView) -> Table {
    let header = ["TOKEN", "OUTCOME", "ENDED", "OWNER", "TASK", "BY", "REASON"];
    Table::of(header, lease.endings.iter().rev(), |ending| {
        [
            ending.token.into(),
            Cell::from(ending.outcome).in_colour(follow::how_colour(ending.outcome)),
            utc(ending.ended_at_ms).into(),
            ending.owner.as_str().into(),
            or_dash(ending.task.as_ref()),
            or_dash(ending.by.as_ref()),
            or_dash(ending.reason.as_ref()),
        ]
    })
}

/// Watch what happens to leases from now on
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold lease watch
fencehold lease watch reports/ -o jsonl | jq -r .type
fencehold lease watch --task-prefix run-42")]
pub(crate) struct WatchArgs {
    /// Only keys that start with this text
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Only what is held for this task and those below it: run-42 covers run-42/a
    #[arg(long, value_name = "TASK")]
    task_prefix: Option<Task>,
}

impl WatchArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_wait()?;
        store
            .closing(async |store| {
                let status = store.explained(store.leases.status(&store.call)).await?;
                let filter =
                    EventFilter { prefix: self.prefix.as_deref(), task_prefix: self.task_prefix.as_ref() };
                follow::follow(store, context.output, status.newest_event_seq, filter).await
            })
            .await
    }
}
