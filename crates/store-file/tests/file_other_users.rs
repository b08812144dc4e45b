//! Who on the same machine may ask what of a `file:` store, seen by processes of three users that speak to its socket: the
//! owner of the directory, a member of its group, and another user. What was seen stands in `docs/security.md`.
//!
//! Only root can start processes of other users. Without it, the test checks what the owner may and says so.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, StoreUrl};
use fencehold_core::Namespace;
use fencehold_store_file::{KnockResult, probe_socket, questions};
use fencehold_test_servers::security_page;
use fencehold_test_store::block_on;

/// What a process that this test starts is to do: `serve URL`, or `knock SOCKET`.
const ROLE: &str = "FENCEHOLD_TEST_NEIGHBOUR";
/// A group that every system has, for directories that are shared.
const GROUP: &str = "users";
/// Users that need no entry anywhere.
const OWNER: u32 = 64_001;
const MEMBER: u32 = 64_002;
const OTHER: u32 = 64_003;

/// Who knocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Owner,
    Member,
    Other,
    Root,
}

impl User {
    const ALL: [User; 4] = [User::Owner, User::Member, User::Other, User::Root];

    fn name(self) -> &'static str {
        match self {
            User::Owner => "owner",
            User::Member => "group member",
            User::Other => "other user",
            User::Root => "root",
        }
    }
}

/// How a directory is set up before the store is opened in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectorySetup {
    /// Left to the store.
    Private,
    /// Named `?group=`.
    Grouped,
    /// Made by a careless administrator: everybody may look into it, and the owner has a umask of 0.
    Readable,
    /// The same, and everybody may write there.
    Writable,
}

impl DirectorySetup {
    const ALL: [DirectorySetup; 4] = [
        DirectorySetup::Private,
        DirectorySetup::Grouped,
        DirectorySetup::Readable,
        DirectorySetup::Writable,
    ];

    fn name(self) -> &'static str {
        match self {
            DirectorySetup::Private => "made by the store (0700)",
            DirectorySetup::Grouped => "`?group=`",
            DirectorySetup::Readable => "mode 0755, umask 0",
            DirectorySetup::Writable => "mode 0777, umask 0",
        }
    }

    /// Makes ready for the owner; the URL, if this version knows such directories.
    fn prepare(self, scratch: &Path) -> Option<String> {
        let path = scratch.join(format!("{self:?}"));
        let mode = match self {
            DirectorySetup::Private | DirectorySetup::Grouped => None,
            DirectorySetup::Readable => Some(0o755),
            DirectorySetup::Writable => Some(0o777),
        };
        if let Some(mode) = mode {
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        }
        let group = if self == DirectorySetup::Grouped { format!("&group={GROUP}") } else { String::new() };
        let url = format!("file:{}?create=true{group}", path.display());
        url.parse::<StoreUrl>().is_ok().then_some(url)
    }
}

/// A copy of this program, where every user can start it.
struct Scratch {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        // Everybody may pass through it, and the owner may make directories in it.
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("neighbour");
        // By a process of its own: one that this process starts meanwhile would have the copy open for writing, and nothing runs it then.
        let copied = Command::new("cp")
            .arg(std::env::current_exe().unwrap())
            .arg(&program)
            .status()
            .unwrap();
        assert!(copied.success());
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        chown(directory.path(), Some(OWNER), Some(OWNER)).unwrap();
        Scratch { directory, program }
    }

    /// A process of this user that plays a role.
    fn start(&self, user: User, umask: &str, role: &str) -> UserProcess {
        let group = group_id().to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        let number = match user {
            User::Owner => OWNER,
            User::Member => MEMBER,
            User::Other => OTHER,
            User::Root => 0,
        };
        command.args(["--reuid", &number.to_string(), "--regid", &number.to_string()]);
        match user {
            // To give a directory to a group, its owner must be in it.
            User::Owner | User::Member => command.args(["--groups", &group]),
            User::Other | User::Root => command.arg("--clear-groups"),
        };
        let script =
            format!("umask {umask}; exec \"$0\" file_other_users::plays_its_role --exact --nocapture");
        let child = command
            .args(["--", "sh", "-c", &script])
            .arg(&self.program)
            .env(ROLE, role)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("setpriv, of util-linux");
        let lines = BufReader::new(child.stdout.take().unwrap());
        UserProcess { child, lines }
    }
}

struct UserProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl UserProcess {
    /// Which process and epoch it finds as the owner of the directory.
    fn finds_owner(&mut self) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"owner\n").unwrap();
        self.says_until("owner").pop().unwrap()
    }

    /// What it says after `seen: `, to the line that starts with `last`.
    fn says_until(&mut self, last: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "it ended before it said {last:?}: {said:?}"
            );
            // The test runner may have begun the line.
            let Some((_, line)) = line.trim_end().split_once("seen: ") else { continue };
            said.push(line.to_owned());
            if line.starts_with(last) {
                return said;
            }
        }
    }
}

impl Drop for UserProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn group_id() -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find_map(|line| line.strip_prefix(&format!("{GROUP}:")));
    line.and_then(|line| line.split(':').nth(1)?.parse().ok())
        .expect("a group of this name")
}

/// Started by this test as another user; started by hand, it does nothing.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split_once(' ').unwrap() {
        ("serve", url) => {
            let url: StoreUrl = url.parse().unwrap();
            let opened = fencehold_stores::open(&url, Arc::new(SystemClock));
            let served = opened.and_then(|store| {
                block_on(store.status(&CallContext::new(Namespace::default()))).map(|_| store)
            });
            match &served {
                Ok(_) => println!("seen: serves"),
                Err(error) => println!("seen: refuses {error}"),
            }
            // Until the test goes. For each line: which process is the owner.
            while std::io::stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0) {
                let Ok(store) = &served else { continue };
                let status = block_on(store.status(&CallContext::new(Namespace::default())));
                println!("seen: owner {:?}", status.map(|status| (status.owner_pid, status.epoch)));
            }
        }
        ("knock", socket) => {
            for (question, knocked) in probe_socket(Path::new(socket)).unwrap() {
                println!("seen: {question} {knocked:?}");
            }
            println!("seen: done");
        }
        other => panic!("{other:?}"),
    }
}

/// Which users get an answer to each question, in one directory.
fn seen_in(scratch: &Scratch, directory: DirectorySetup, url: &str) -> Vec<String> {
    let umask = match directory {
        DirectorySetup::Private | DirectorySetup::Grouped => "022",
        DirectorySetup::Readable | DirectorySetup::Writable => "000",
    };
    let mut owner = scratch.start(User::Owner, umask, &format!("serve {url}"));
    let started = owner.says_until("");
    if started[0] != "serves" {
        assert!(
            started[0].starts_with("refuses") && directory != DirectorySetup::Private,
            "{directory:?}: {started:?}"
        );
        return questions()
            .iter()
            .map(|_| "the store refuses the directory".to_owned())
            .collect();
    }
    let socket = socket_in(&scratch.directory.path().join(format!("{directory:?}")));
    let role = format!("knock {}", socket.display());
    let mut answered: Vec<Vec<&str>> = questions().iter().map(|_| Vec::new()).collect();
    for user in User::ALL {
        let said = scratch.start(user, "022", &role).says_until("done");
        for ((question, line), answered) in questions().iter().zip(&said).zip(&mut answered) {
            match line.strip_prefix(question.as_str()).map(str::trim) {
                Some("Answered") => answered.push(user.name()),
                Some("Refused" | "Unreachable") => {}
                other => panic!("{user:?} about {question}: {other:?}"),
            }
        }
    }
    answered
        .into_iter()
        .map(|users| if users.len() == User::ALL.len() { "every user".to_owned() } else { users.join(", ") })
        .collect()
}

fn socket_in(directory: &Path) -> PathBuf {
    let mut paths = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let socket = paths.find(|path| path.extension().is_some_and(|ending| ending == "sock"));
    socket.expect("a socket in the directory")
}

#[test]
fn the_matrix_of_the_socket_is_what_was_seen() {
    assert!(questions().len() > 20, "{:?}", questions());
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "not root: processes of other users cannot be started, so only this user's rights are seen"
        );
        let directory = tempfile::tempdir().unwrap();
        let url: StoreUrl = format!("file:{}?create=true", directory.path().join("store").display())
            .parse()
            .unwrap();
        let store = fencehold_stores::open(&url, Arc::new(SystemClock)).unwrap();
        block_on(store.status(&CallContext::new(Namespace::default()))).unwrap();
        let seen = probe_socket(&socket_in(&directory.path().join("store"))).unwrap();
        assert!(seen.iter().all(|(_, knocked)| *knocked == KnockResult::Answered), "{seen:?}");
        return;
    }
    let scratch = Scratch::new();
    let mut columns = Vec::new();
    let mut rows: Vec<(String, Vec<String>)> = questions()
        .into_iter()
        .map(|question| (format!("`{question}`"), Vec::new()))
        .collect();
    for directory in DirectorySetup::ALL {
        let Some(url) = directory.prepare(scratch.directory.path()) else { continue };
        columns.push(directory.name().to_owned());
        for ((_, cells), cell) in rows.iter_mut().zip(seen_in(&scratch, directory, &url)) {
            cells.push(cell);
        }
    }
    security_page::check("socket", "question", &columns, &rows);
}

/// What a member may, on both sides of the socket; and that no other user may, even where the modes of the files let them.
#[test]
fn members_of_a_group_serve_and_take_over_a_shared_directory_and_others_do_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: processes of other users cannot be started, so nothing is checked");
        return;
    }
    let scratch = Scratch::new();
    let url = DirectorySetup::Grouped.prepare(scratch.directory.path()).unwrap();
    let serve = format!("serve {url}");
    let directory = scratch.directory.path().join("Grouped");
    let owned_by = |process: &UserProcess, epoch: u64| {
        format!("owner Ok((Some({}), Some({epoch})))", process.child.id())
    };

    // The umask would keep everything from the group.
    let mut owner = scratch.start(User::Owner, "077", &serve);
    assert_eq!(owner.says_until(""), ["serves"]);
    let mut member = scratch.start(User::Member, "077", &serve);
    assert_eq!(member.says_until(""), ["serves"]);
    assert_eq!(member.finds_owner(), owned_by(&owner, 1), "through the socket");
    assert_shared(&directory);
    drop(owner);
    assert_eq!(member.finds_owner(), owned_by(&member, 2), "killed, so taken over");
    assert_shared(&directory);

    let refused = |user: User, url: &str| {
        let said = scratch
            .start(user, "022", &format!("serve {url}"))
            .says_until("")
            .pop()
            .unwrap();
        assert!(said.starts_with("refuses"), "{user:?}, {url}: {said}");
        said
    };
    assert!(refused(User::Other, &url).contains("is not in that"), "by the name of the group");
    let private = format!("file:{}", directory.display());
    refused(User::Other, &private);
    for user in [User::Owner, User::Member, User::Root] {
        assert!(refused(user, &private).contains(&format!("?group={GROUP}")), "{user:?}");
    }

    // A careless administrator opens everything: the owner still asks who connects.
    let socket = socket_in(&directory);
    fs::set_permissions(&directory, Permissions::from_mode(0o2777)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    for (user, expected) in [(User::Owner, "Answered"), (User::Member, "Answered"), (User::Other, "Refused")]
    {
        let said = scratch
            .start(user, "022", &format!("knock {}", socket.display()))
            .says_until("done");
        let answers = &said[..said.len() - 1];
        assert!(answers.iter().all(|line| line.ends_with(expected)), "{user:?}: {answers:?}");
    }
    assert!(refused(User::Owner, &url).contains("chmod 2770"), "others may write there now");
    fs::set_permissions(&directory, Permissions::from_mode(0o2770)).unwrap();

    // Back again, with files that another member has made. A member may not have a file outside of it changed.
    drop(member);
    let precious = scratch.directory.path().join("precious");
    fs::write(&precious, "important").unwrap();
    chown(&precious, Some(OWNER), Some(OWNER)).unwrap();
    fs::hard_link(&precious, directory.join("owner-3.lock")).unwrap();
    assert!(refused(User::Owner, &url).contains("other names elsewhere"));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "important");
    fs::remove_file(directory.join("owner-3.lock")).unwrap();
    let mut owner = scratch.start(User::Owner, "077", &serve);
    assert_eq!(owner.says_until(""), ["serves"]);
    assert_eq!(owner.finds_owner(), owned_by(&owner, 3));
    assert_shared(&directory);
}

/// Everything in it is the group's, for the group alone to read and write.
fn assert_shared(directory: &Path) {
    let is = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(is(directory), (group_id(), 0o2770));
    let entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(entries.len() >= 5, "{entries:?}");
    for entry in entries {
        assert_eq!(is(&entry), (group_id(), 0o660), "{}", entry.display());
    }
}
