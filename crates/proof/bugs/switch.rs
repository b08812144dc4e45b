//! Which bug is on. `cargo xtask bugs` adds this file to `core` in its copy of the source; it is part of no other build.

use std::path::Path;
use std::sync::LazyLock;

/// Chosen once for a process. A name that no bug has must not look like a bug that nothing notices.
static ON: LazyLock<Option<String>> = LazyLock::new(|| {
    let name = std::env::var("FENCEHOLD_BUG").ok().filter(|name| !name.is_empty())?;
    let bugs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proof/bugs");
    assert!(bugs.join(format!("{name}.diff")).exists(), "there is no bug `{name}`");
    Some(name)
});

pub fn is_on(name: &str) -> bool {
    ON.as_deref() == Some(name)
}

pub fn is_any_on() -> bool {
    ON.is_some()
}
