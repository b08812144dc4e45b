//! `fencehold man`: manual pages, from the same definitions as the help.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args;
use crate::context::Context;
use crate::failure::Failure;
use crate::verb::VerbResult;

/// Print the manual page, or write all pages into a directory
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold man | man -l -
fencehold man ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Where to write the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "all verbs are alike to the registry")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let mut command = args::definition();
        command.build();
        let Some(directory) = &self.directory else {
            let mut page = Vec::new();
            render(&command, &mut page).map_err(|error| unwritten(Path::new("the page"), &error))?;
            return context.output.write(&page);
        };
        std::fs::create_dir_all(directory)
            .and_then(|()| write_all(&command, "fencehold", directory))
            .map_err(|error| unwritten(directory, &error))
    }
}

fn unwritten(place: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}", place.display()))
}

fn write_all(command: &clap::Command, name: &str, directory: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    render(command, &mut page)?;
    std::fs::write(directory.join(format!("{name}.1")), page)?;
    command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .try_for_each(|verb| write_all(verb, &format!("{name}-{}", verb.get_name()), directory))
}

/// A page has its examples before its options, as the help has.
fn render(command: &clap::Command, page: &mut dyn Write) -> io::Result<()> {
    let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    let has_verbs = command.has_subcommands();
    let has_more = command.get_after_help().is_some();
    let man = Man::new(command.clone().version(env!("CARGO_PKG_VERSION")))
        .source("fencehold")
        .manual("Fencehold");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    if let Some(lines) = examples.strip_prefix("Examples:\n") {
        let mut section = Roff::new();
        section.control("SH", ["EXAMPLES"]).control("nf", []);
        section.text([roman(lines.trim_end())]).control("fi", []);
        section.to_writer(page)?;
    }
    man.render_options_section(page)?;
    if has_verbs {
        man.render_subcommands_section(page)?;
    }
    if has_more {
        man.render_extra_section(page)?;
    }
    man.render_version_section(page)
}
