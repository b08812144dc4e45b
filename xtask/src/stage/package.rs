//! Every crate can be packed for crates.io.
//!
//! Without the verifying build: it would compile everything once more, and the sources are those just tested.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::run(&mut process::cargo("package --workspace --allow-dirty --no-verify"))
}
