//! Where things are.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The root of the checkout from which xtask is run; not that in which it was built: checkouts may share a target folder.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let run_from = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let here = run_from.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        here.parent().unwrap_or(&here).to_owned()
    });
    &ROOT
}

/// The folder of what cargo built in `profile` (`debug`, `release`).
pub(crate) fn built(profile: &str) -> Result<PathBuf, String> {
    Ok(target()?.join(profile))
}

/// The target folder.
///
/// Found from where xtask itself was built to, so that `CARGO_TARGET_DIR` and the like are honoured without asking.
pub(crate) fn target() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("xtask cannot find itself: {error}"))?;
    let target = program.ancestors().nth(2);
    let target = target.ok_or_else(|| format!("{} is in no target folder", program.display()))?;
    Ok(target.to_owned())
}
