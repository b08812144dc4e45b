//! Where a password comes from that the URL does not have: where PostgreSQL's own programs look for it.
//!
//! `PGPASSWORD`; else the first line of `~/.pgpass` (or of the file that `PGPASSFILE` names) that fits:
//! `HOST:PORT:DATABASE:USER:PASSWORD`, `*` for any. A file that others may read is passed over.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fencehold_contract::PostgresUrl;

/// The password for this user, if there is one anywhere.
pub(super) fn find(url: &PostgresUrl, user: &str) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    if let Some(password) = url.password.clone().or_else(|| variable("PGPASSWORD")) {
        return Some(password);
    }
    let file = match variable("PGPASSFILE") {
        Some(named) => PathBuf::from(named),
        None => PathBuf::from(variable("HOME")?).join(".pgpass"),
    };
    let text = private(&file)?;
    url.hosts
        .iter()
        .find_map(|(host, port)| in_lines(&text, [host, &port.to_string(), &url.database, user]))
}

/// What is in a file that no other user may read.
fn private(file: &Path) -> Option<String> {
    let about = fs::metadata(file).ok()?;
    if about.permissions().mode() & 0o077 != 0 {
        tracing::warn!(file = %file.display(), "others may read this file of passwords, so it is not used: chmod 0600");
        return None;
    }
    fs::read_to_string(file).ok()
}

fn in_lines(text: &str, [host, port, database, user]: [&str; 4]) -> Option<String> {
    // A socket is on this machine.
    let wanted = [if host.starts_with('/') { "localhost" } else { host }, port, database, user];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let [names @ .., password] = &fields[..] else { return None };
        let fits = names.len() == wanted.len()
            && names.iter().zip(wanted).all(|((name, any), wanted)| *any || name == wanted);
        fits.then(|| password.0.clone())
    })
}

/// The fields of a line, each with whether it is a bare `*`. A backslash takes the meaning from what follows.
fn fields(line: &str) -> Vec<(String, bool)> {
    let mut fields = Vec::new();
    let (mut field, mut escaped) = (String::new(), false);
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                escaped = true;
                field.extend(chars.next());
            }
            // The password is the rest of the line.
            ':' if fields.len() < 4 => {
                fields.push((field.clone(), !escaped && field == "*"));
                (field, escaped) = (String::new(), false);
            }
            other => field.push(other),
        }
    }
    fields.push((field, false));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# for the shop
db.example:5432:app:me:of the app
db.example:*:*:me:pass\\:word
*:*:\\*:me:of a database that is called *
localhost:5432:app:*:through a socket
";

    fn found(host: &str, port: &str, database: &str, user: &str) -> Option<String> {
        in_lines(FILE, [host, port, database, user])
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        assert_eq!(found("db.example", "5432", "app", "me").as_deref(), Some("of the app"));
        assert_eq!(found("db.example", "5433", "app", "me").as_deref(), Some("pass:word"));
        assert_eq!(found("elsewhere", "1", "*", "me").as_deref(), Some("of a database that is called *"));
        assert_eq!(found("/run/postgresql", "5432", "app", "you").as_deref(), Some("through a socket"));
        assert_eq!(found("elsewhere", "1", "app", "me"), None);
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        assert_eq!(in_lines("\n:::\na:b\n*:*:*:*", ["h", "1", "d", "u"]), None);
        assert_eq!(in_lines("*:*:*:*:with:colons", ["h", "1", "d", "u"]).as_deref(), Some("with:colons"));
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passwords");
        fs::write(&file, FILE).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(private(&file).is_some());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(private(&file).is_none());
    }
}
