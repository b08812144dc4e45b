//! The process that starts all others of the demo, and has happen to them what people came to see.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencehold_contract::job::{JobFilter, ListJobsRequest};
use fencehold_core::job::JobState;
use fencehold_core::{Key, Owner};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::clean_up;
use super::parts::{Email, ORDERS, Order, REPORT};
use crate::context::{Context, OpenStore};
use crate::failure::Failure;
use crate::output::note;
use crate::process::{OURSELVES, adopt_orphans, ended_child};
use crate::show::{Colour, Style};
use crate::store_choice::{STORE_VARIABLE, StoreChoice};
use crate::verb::VerbResult;

const DEFAULT_ADDRESS: &str = "localhost:7117";
/// Where that one is taken.
const FREE_ADDRESS: &str = "127.0.0.1:0";
const EMAILS: &str = "emails";
const MAILERS: [&str; 2] = ["mailer-1", "mailer-2"];
/// How often the fleet is looked at, and how often something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two emails.
const EMAIL_EVERY: Duration = Duration::from_millis(400);
/// The first crash and the first stall come soon, the next ones after these times.
const FIRST_AFTER: Duration = Duration::from_secs(1);
const CRASH_EVERY: Duration = Duration::from_secs(15);
const STALL_EVERY: Duration = Duration::from_secs(20);

/// What was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) listen: Option<String>,
    pub(super) insecure: bool,
    pub(super) seconds: Option<u64>,
}

/// Runs the demo until its time is over or the first process has gone. Nothing of it is left then.
pub(super) async fn run(context: &Context, directory: &Path, options: Options) -> VerbResult {
    let outcome = match adopt_orphans() {
        Ok(()) => serve_and_act(context, directory, &options).await,
        Err(error) => Err(Failure::failed(format!("the demo cannot be started: {error}"))),
    };
    let cleaned = clean_up(directory);
    outcome.and(cleaned)
}

async fn serve_and_act(context: &Context, directory: &Path, options: &Options) -> VerbResult {
    let first_process = stdin_ended();
    let (server, url) = match &options.listen {
        Some(address) => start_server(directory, address, options.insecure)?,
        None => start_server(directory, DEFAULT_ADDRESS, options.insecure)
            .or_else(|_| start_server(directory, FREE_ADDRESS, options.insecure))?,
    };
    let store = context.open_at(&StoreChoice::named(&url)?)?;
    let started = Started { url: url.clone(), directory: directory.display().to_string() };
    context.output.one(&started, |style| tour(&url, style))?;
    let fleet = RefCell::new(Fleet::new(server, Launch::new(context, directory, &url)));
    let demo = Demo { store: &store, fleet: &fleet };
    let time_is_over = async {
        match options.seconds {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = first_process => Ok(()),
        () = time_is_over => Ok(()),
        outcome = demo.keep_running() => outcome,
        outcome = demo.crash() => outcome,
        outcome = demo.stall() => outcome,
        outcome = demo.enqueue() => outcome,
    }
}

/// Ends with stdin, which is when the first process has gone.
fn stdin_ended() -> oneshot::Receiver<()> {
    let (sender, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        sender.send(())
    });
    ended
}

/// What programs learn of the demo.
#[derive(Debug, Serialize)]
struct Started {
    url: String,
    directory: String,
}

fn tour(url: &str, style: Style) -> String {
    let title = style.paint(&format!("The demo runs at {url}"), Colour::Strong);
    format!(
        "{title}

  /                         what is held, what waits, what did not end well
  /lease?key=reports/daily  a holder is stopped past its ttl: who took over, and
                            what became of the late one
  /lease?key=gpu/0          one key, and three processes that want it
  /jobs?state=running       a worker is killed: its job goes to the other one,
                            under a higher token
  /jobs?queue=orders        sagas: open a failed one, and see its effects undone

In another shell:

  export FENCEHOLD_STORE={url}
  fencehold lease ls
  fencehold explain reports/daily
  fencehold event watch

Ctrl-C ends it. Nothing is left of it then.
"
    )
}

/// What every process of the demo is started with.
struct Launch {
    namespace: String,
    directory: OsString,
    url: String,
}

impl Launch {
    fn new(context: &Context, directory: &Path, url: &str) -> Self {
        let (namespace, url) = (context.namespace.to_string(), url.to_owned());
        Launch { namespace, directory: directory.into(), url }
    }

    fn start(&self, words: &[String]) -> std::io::Result<Pid> {
        let mut command = ourselves(&self.directory);
        command
            .args(words)
            .env(STORE_VARIABLE, &self.url)
            .env("FENCEHOLD_NAMESPACE", &self.namespace)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Pid::from_child(&command.spawn()?))
    }
}

/// This program, without what the environment says to it, and with the demo's directory for a home and for what is temporary.
fn ourselves(home: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(OURSELVES);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCEHOLD_") {
            command.env_remove(name);
        }
    }
    let home = home.as_ref();
    command
        .arg0("fencehold")
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

/// Starts the server; gives it and its URL once it serves.
fn start_server(directory: &Path, address: &str, insecure: bool) -> Result<(Pid, String), Failure> {
    let store = format!("file:{}", directory.join("store").display());
    let mut command = ourselves(directory);
    command.args(["serve", "--create", "--store", &store, "--listen", address]);
    if insecure {
        command.arg("--insecure");
    }
    let unstarted = |why: &str| Failure::failed(format!("the server does not start at {address}: {why}"));
    let server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut server = server.map_err(|error| unstarted(&error.to_string()))?;
    let pid = Pid::from_child(&server);
    let mut lines =
        BufReader::new(server.stderr.take().ok_or_else(|| unstarted("it has no stderr"))?).lines();
    let mut said = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some((_, urls)) = line.split_once(" at http").filter(|_| line.contains("serving ")) {
            let url = format!("http{}", urls.split(" and ").next().unwrap_or(urls));
            // To its end: a full pipe would stop the server.
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok((pid, url));
        }
        said.push(line.trim_start_matches("fencehold: ").to_owned());
    }
    let _ = server.wait();
    Err(unstarted(&said.join("; ")))
}

/// A process that is started again whenever it has ended.
struct Member {
    name: &'static str,
    words: Vec<String>,
    /// How long it is missed when it has ended.
    pause: Duration,
    pid: Option<Pid>,
    start_at: Instant,
}

/// The server, and the processes that use it.
struct Fleet {
    server: Pid,
    launch: Launch,
    members: Vec<Member>,
}

impl Fleet {
    fn new(server: Pid, launch: Launch) -> Self {
        let step = [OURSELVES, "demo", "--part", "step"];
        let mut members = Vec::new();
        let mut add = |name: &'static str, pause_ms: u64, words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let pause = Duration::from_millis(pause_ms);
            members.push(Member { name, words, pause, pid: None, start_at: Instant::now() });
        };
        for name in MAILERS {
            let work =
                ["work", "--queue", EMAILS, "--owner", name, "--concurrency", "2", "--ttl", "2s", "--"];
            add(name, 1_000, &[&work[..], &step[..]].concat());
        }
        for name in ["trainer-1", "trainer-2"] {
            let run = ["run", "--key", "gpu/0", "--owner", name, "--ttl", "2s", "--wait", "1h", "--"];
            add(name, 100, &[&run[..], &step[..]].concat());
        }
        // This one does not wait: it is refused, and asks again.
        let run = ["run", "--key", "gpu/0", "--owner", "trainer-3", "--ttl", "2s", "--"];
        add("trainer-3", 1_000, &[&run[..], &step[..]].concat());
        for name in ["writer-1", "writer-2"] {
            add(name, 1_000, &["demo", "--part", "writer", "--name", name]);
        }
        add("shop-1", 1_000, &["demo", "--part", "shop", "--name", "shop-1"]);
        Fleet { server, launch, members }
    }

    /// Sees who has ended, and starts who is due.
    fn look(&mut self) -> Result<(), Failure> {
        while let Some(ended) = ended_child() {
            if ended == self.server {
                return Err(Failure::failed("the server of the demo has ended"));
            }
            // Others are inherited: what a process left behind that was killed.
            if let Some(member) = self.members.iter_mut().find(|member| member.pid == Some(ended)) {
                member.pid = None;
                member.start_at = Instant::now() + member.pause;
            }
        }
        for member in &mut self.members {
            if member.pid.is_none() && member.start_at <= Instant::now() {
                let started = self.launch.start(&member.words);
                let unstarted =
                    |error| Failure::failed(format!("{} cannot be started: {error}", member.name));
                member.pid = Some(started.map_err(unstarted)?);
            }
        }
        Ok(())
    }

    /// Sends a signal to a process, if it runs. Whether it does. Its pid cannot be that of another one: only [`Fleet::look`] reaps it.
    fn send(&self, name: &str, signal: Signal) -> bool {
        let member = self.members.iter().find(|member| member.name == name);
        let pid = member.and_then(|member| member.pid);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

/// What happens to the fleet.
struct Demo<'a> {
    store: &'a OpenStore,
    fleet: &'a RefCell<Fleet>,
}

impl Demo<'_> {
    async fn keep_running(&self) -> VerbResult {
        loop {
            self.fleet.borrow_mut().look()?;
            sleep(LOOK_EVERY).await;
        }
    }

    /// Kills one mailer after the other while it works on a job.
    async fn crash(&self) -> VerbResult {
        sleep(FIRST_AFTER).await;
        for name in MAILERS.into_iter().cycle() {
            let (owner, states) = (Some(Owner::new(name)?), vec![JobState::Running]);
            let filter = JobFilter { owner, states, ..JobFilter::default() };
            let request = ListJobsRequest { filter, cursor: None, limit: 1 };
            loop {
                let page = self
                    .store
                    .ask(async |jobs, call| jobs.list_jobs(call, request.clone()).await)
                    .await?;
                if let Some(job) = page.jobs.first()
                    && self.fleet.borrow().send(name, Signal::KILL)
                {
                    note(&format!("{name} was killed (SIGKILL) at work on job {}", job.id));
                    break;
                }
                sleep(LOOK_EVERY).await;
            }
            sleep(CRASH_EVERY).await;
        }
        Ok(())
    }

    /// Stops the holder of a key until another one has it, and lets it go on.
    async fn stall(&self) -> VerbResult {
        let key = Key::new(REPORT)?;
        sleep(FIRST_AFTER).await;
        loop {
            let lease = self
                .store
                .explained(self.store.leases.get(&self.store.call, key.clone()))
                .await?;
            let held = lease.and_then(|lease| Some((lease.token, lease.holder?.owner)));
            if let Some((token, owner)) = held
                && self.fleet.borrow().send(owner.as_str(), Signal::STOP)
            {
                note(&format!("{owner}, which holds {key} under token {token}, was stopped (SIGSTOP)"));
                let next = loop {
                    let lease = self
                        .store
                        .explained(self.store.leases.get(&self.store.call, key.clone()))
                        .await?;
                    let next = lease.map(|lease| lease.token).filter(|next| *next > token);
                    if let Some(next) = next {
                        break next;
                    }
                    sleep(LOOK_EVERY).await;
                };
                self.fleet.borrow().send(owner.as_str(), Signal::CONT);
                note(&format!("{owner} goes on (SIGCONT); {key} is held under token {next}"));
                sleep(STALL_EVERY).await;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Emails, of which some fail and are tried again, and orders.
    async fn enqueue(&self) -> VerbResult {
        let library = self.store.library().await?;
        let explain = |error| Failure::of_library(error, &self.store.name);
        for nth in 0_u64.. {
            let (to, failures) = match nth % 20 {
                7 => ("no-such-user@example.org", 99),
                nth if nth % 4 == 1 => ("bob@example.org", 1),
                _ => ("ada@example.org", 0),
            };
            let email = Email { to: to.to_owned(), failures, takes_ms: 300 + nth % 5 * 100 };
            let job = library.queue(EMAILS).job("email", &email).max_failures(3);
            job.enqueue().await.map_err(explain)?;
            if nth % 5 == 0 {
                let is_reachable = nth % 10 != 0;
                let to = if is_reachable { "Lyon" } else { "Atlantis" }.to_owned();
                let order = Order { number: nth / 5 + 1, to, is_reachable };
                library.queue(ORDERS).job("order", &order).enqueue().await.map_err(explain)?;
            }
            sleep(EMAIL_EVERY).await;
        }
        Ok(())
    }
}
