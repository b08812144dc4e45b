//! The wheel, and whether its tag is true.

use std::process::Command;

use super::{Build, archive, copy, tools};
use crate::process;

pub(super) fn wheel(build: &Build) -> Result<(), String> {
    let folder = archive::scratch(build, "python")?;
    copy(&build.binary(), &folder.join("fencehold"))?;
    // pip takes a wheel of `linux_…` from a file only; PyPI does not take it at all.
    let platform = if build.dev { "linux_x86_64" } else { build.platform.wheel };
    let python = tools::python_tools()?.join("bin/python");
    let mut make = Command::new(&python);
    make.args(["-m", "hatchling", "build", "--target", "wheel", "--directory"])
        .arg(&build.out)
        .current_dir(&folder)
        .env("FENCEHOLD_VERSION", build.version)
        .env("FENCEHOLD_WHEEL_PLATFORM", platform);
    process::run(&mut make)?;
    if build.dev {
        return Ok(());
    }
    let file = build
        .out
        .join(format!("fencehold_server-{}-py3-none-{platform}.whl", build.version));
    let shown = process::output(Command::new(&python).args(["-m", "auditwheel", "show"]).arg(file))?;
    println!("{shown}");
    // It names the oldest platform on which the wheel's programs would run.
    let newest = platform.split('.').next().unwrap_or(platform);
    if shown.split_whitespace().any(|word| word.contains(newest)) {
        Ok(())
    } else {
        Err(format!("auditwheel does not find the wheel to be {newest}: {shown}"))
    }
}
