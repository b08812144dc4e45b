//! The default owner: for the record, not for permission.

use fencehold_core::limits::OWNER_BYTES_MAX;
use fencehold_core::{BadInput, Owner};

use crate::context::variable;

/// Who acts, for verbs that leave a trace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ByArgs {
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
}

impl ByArgs {
    pub(crate) fn of(by: Option<Owner>) -> Self {
        ByArgs { by }
    }

    pub(crate) fn owner(self) -> Result<Owner, BadInput> {
        self.by.map_or_else(person, Ok)
    }
}

/// The person at this command line: `user@host`.
pub(crate) fn person() -> Result<Owner, BadInput> {
    Owner::new(clean(&format!("{}@{}", user(), host())))
}

/// The script that called us: `user@host/pid`. Our own pid would name a process that is gone before anybody reads it.
pub(crate) fn caller() -> Result<Owner, BadInput> {
    process(std::os::unix::process::parent_id())
}

/// This process, for as long as it works: `user@host/pid`.
pub(crate) fn ourselves() -> Result<Owner, BadInput> {
    process(std::process::id())
}

fn process(pid: u32) -> Result<Owner, BadInput> {
    Owner::new(clean(&format!("{}@{}/{pid}", user(), host())))
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    name_of(uid, &String::from_utf8_lossy(&passwd))
        // Not every user stands in the file: a directory service may know more.
        .or_else(|| variable("USER")?.into_string().ok())
        .unwrap_or_else(|| format!("uid-{uid}"))
}

fn name_of(uid: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let its_uid: u32 = fields.nth(1)?.parse().ok()?;
        (its_uid == uid).then(|| name.to_owned())
    })
}

/// A host name can be anything; an owner cannot.
fn clean(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    while text.len() > OWNER_BYTES_MAX {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number_and_not_by_place() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:100::/home/me:/bin/sh\n";
        assert_eq!(name_of(1000, passwd).as_deref(), Some("me"));
        assert_eq!(name_of(100, passwd), None, "that is a group");
    }

    #[test]
    fn any_host_name_makes_an_owner() {
        assert!(Owner::new(clean(&format!("a\u{1b}[31m@{}", "ü".repeat(300)))).is_ok());
        assert!(person().is_ok() && caller().is_ok());
    }
}
