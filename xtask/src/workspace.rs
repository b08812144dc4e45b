//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
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
