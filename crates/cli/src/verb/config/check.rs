//! `fencehold config check`: whether a server could be started with these settings, and where each comes from.

use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::place::Chosen;
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, Outcome};
use crate::whereabouts::{Whereabouts, access_file, settings};

const EXAMPLES: &str = "\
Examples:
  fencehold config check --config /etc/fencehold/server.toml
  FENCEHOLD_SERVE_LISTEN=0.0.0.0:7117 fencehold config check -o json
";

/// Check a server's settings, and show where each comes from. Nothing is started or changed
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    whereabouts: Whereabouts,
}

#[derive(Serialize)]
struct Line {
    key: &'static str,
    value: String,
    from: Option<String>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        let told = self.whereabouts.told(Vec::new())?;
        let settings = settings(&told)?;
        let place = context.place_or(settings.store.as_deref())?;
        let access = access_file(&settings, &place)?;
        crate::logging::check_server(&settings.log)?;
        // Nothing is sent, so no seed is needed that would keep it apart from others.
        settings
            .options([0; 16])
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        let mut lines: Vec<Line> = told
            .lines()
            .map(|(key, value, origin)| Line { key, value, from: origin.map(ToString::to_string) })
            .collect();
        // What they come to, whoever said so.
        for line in &mut lines {
            match line.key {
                "store" => {
                    line.value = place.url.to_string();
                    match place.chosen {
                        Chosen::Flag | Chosen::Variable => line.from = Some(place.chosen.to_string()),
                        Chosen::Settings | Chosen::Default => {}
                    }
                }
                "access" => line.value = access.display().to_string(),
                _ => {}
            }
        }
        context.output.many(&lines, "", || {
            let mut table = Table::new(["SETTING", "VALUE", "FROM"]);
            for line in &lines {
                let from = match &line.from {
                    Some(from) => Cell::from(from),
                    None => Cell::from("default").in_colour(Colour::Faint),
                };
                table.row([line.key.into(), line.value.as_str().into(), from]);
            }
            table
        })?;
        Ok(DONE)
    }
}
